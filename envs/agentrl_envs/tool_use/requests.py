"""What people ask for: each kind of request is drawn from a world with the calls that fulfil it and the answer."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from agentrl.api import JSON
from agentrl_envs.tool_use.world import DAYS, HOURS, State

NAMES = ("Ana", "Bob", "Cleo", "Dan", "Eva", "Finn", "Gil", "Hana")
ITEMS = ("bell", "card", "cup", "lamp", "pen", "ring", "rope", "tent")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request, the calls of its plan as `(tool, arguments)`, and the answer in words, where one is asked for.

    Example: `Request(text="Cancel order 14.", plan=(("cancel", {"order": 14}),))`.
    """

    text: str
    plan: tuple[tuple[str, Mapping[str, JSON]], ...]
    answer: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of request. draw: a request about a world, or None where the world has nothing of the kind.

    Example: `KINDS["order"].domain == "shop"`.
    """

    domain: str
    calls: int
    draw: Callable[[State, random.Random], Request | None] = field(repr=False)


def draw_world(random_: random.Random) -> State:
    """A small world. Nobody has two open orders of one item."""
    names, items = random_.sample(NAMES, 3), random_.sample(ITEMS, 3)
    orders: list[dict[str, JSON]] = []
    numbers = sorted(random_.sample(range(10, 100), 6))
    for number, (name, item) in zip(numbers, random_.sample([(n, i) for n in names for i in items], 6), strict=True):
        status = random_.choice(("open", "open", "open", "shipped"))
        count = random_.randint(1, 5)
        orders.append({"id": number, "customer": name, "item": item, "count": count, "status": status})
    days = sorted(random_.sample(DAYS, 2), key=DAYS.index)
    bookings = [
        {"day": day, "hour": hour, "name": random_.choice(names)}
        for day in sorted(days)
        for hour in sorted(random_.sample(HOURS, random_.randint(2, 3)))
    ]
    return {
        "customers": [{"name": name} for name in sorted(names)],
        "items": [
            {"name": item, "price": random_.randint(2, 9), "stock": random_.randint(3, 9)} for item in sorted(items)
        ],
        "orders": orders,
        "bookings": bookings,
    }


def _one_item(world: State, random_: random.Random) -> tuple[str, int]:
    row = random_.choice(world["items"])
    return row["name"], row["stock"]


def _one_name(world: State, random_: random.Random) -> str:
    return str(random_.choice(world["customers"])["name"])


def _one_order(world: State, random_: random.Random) -> dict[str, JSON] | None:
    rows = [row for row in world["orders"] if row["status"] == "open"]
    return random_.choice(rows) if rows else None


def _order(world: State, random_: random.Random) -> Request:
    name, (item, stock) = _one_name(world, random_), _one_item(world, random_)
    count = random_.randint(1, stock)
    return Request(text=f"{name} orders {count} {item}.", plan=(_ordered(name, item, count),))


def _ordered(name: str, item: str, count: int) -> tuple[str, Mapping[str, JSON]]:
    return "order", {"customer": name, "item": item, "count": count}


def _restock(world: State, random_: random.Random) -> Request:
    (item, _), count = _one_item(world, random_), random_.randint(2, 20)
    return Request(text=f"Add {count} {item} to the stock.", plan=(("restock", {"item": item, "count": count}),))


def _with_number(verb: str, tool: str) -> Callable[[State, random.Random], Request | None]:
    def draw(world: State, random_: random.Random) -> Request | None:
        row = _one_order(world, random_)
        if row is None:
            return None
        return Request(text=f"{verb} order {row['id']}.", plan=((tool, {"order": row["id"]}),))

    return draw


def _with_name(verb: str, tool: str) -> Callable[[State, random.Random], Request | None]:
    def draw(world: State, random_: random.Random) -> Request | None:
        row = _one_order(world, random_)
        if row is None:
            return None
        text = f"{verb} the {row['item']} of {row['customer']}."
        return Request(text=text, plan=(("orders", {"customer": row["customer"]}), (tool, {"order": row["id"]})))

    return draw


def _all_of(verb: str, tool: str) -> Callable[[State, random.Random], Request | None]:
    def draw(world: State, random_: random.Random) -> Request | None:
        name = _one_name(world, random_)
        numbers = [row["id"] for row in world["orders"] if (row["customer"], row["status"]) == (name, "open")]
        if len(numbers) != 2:
            return None
        calls = tuple((tool, {"order": number}) for number in numbers)
        return Request(text=f"{verb} all open orders of {name}.", plan=(("orders", {"customer": name}), *calls))

    return draw


def _ask(column: str, question: str) -> Callable[[State, random.Random], Request | None]:
    def draw(world: State, random_: random.Random) -> Request:
        row = random_.choice(world["items"])
        text = question.format(item=row["name"])
        return Request(text=text, plan=(("item", {"name": row["name"]}),), answer=str(row[column]))

    return draw


def _order_rest(world: State, random_: random.Random) -> Request:
    name, (item, stock) = _one_name(world, random_), _one_item(world, random_)
    plan = (("item", {"name": item}), _ordered(name, item, stock))
    return Request(text=f"{name} orders every {item} in stock.", plan=plan)


def _too_many(world: State, random_: random.Random) -> Request:
    name, (item, stock) = _one_name(world, random_), _one_item(world, random_)
    count = stock + random_.randint(1, 9)
    text = f"{name} orders {count} {item}. If there are too few, order none and say how many there are."
    return Request(text=text, plan=(("item", {"name": item}),), answer=str(stock))


def _enough(world: State, random_: random.Random) -> Request:
    name, (item, stock) = _one_name(world, random_), _one_item(world, random_)
    count = random_.randint(1, stock)
    text = f"{name} orders {count} {item}. If there are too few, order none and say how many there are."
    return Request(text=text, plan=(("item", {"name": item}), _ordered(name, item, count)))


def _order_left(world: State, random_: random.Random) -> Request:
    name, (item, stock) = _one_name(world, random_), _one_item(world, random_)
    count = random_.randint(1, stock - 2)
    plan = (_ordered(name, item, count), ("item", {"name": item}))
    return Request(text=f"{name} orders {count} {item}. How many are left?", plan=plan, answer=str(stock - count))


def _swap(world: State, random_: random.Random) -> Request | None:
    row = _one_order(world, random_)
    if row is None:
        return None
    others = [one["name"] for one in world["items"] if one["name"] != row["item"] and one["stock"] >= row["count"]]
    if not others:
        return None
    other = random_.choice(others)
    plan = (
        ("orders", {"customer": row["customer"]}),
        ("cancel", {"order": row["id"]}),
        _ordered(row["customer"], other, row["count"]),
    )
    return Request(text=f"{row['customer']} wants the {other} instead of the {row['item']}.", plan=plan)


def _hand_over(world: State, random_: random.Random) -> Request | None:
    row = _one_order(world, random_)
    if row is None:
        return None
    name = random_.choice([one["name"] for one in world["customers"] if one["name"] != row["customer"]])
    stock = next(one["stock"] for one in world["items"] if one["name"] == row["item"])
    plan = (
        ("orders", {"customer": row["customer"]}),
        ("cancel", {"order": row["id"]}),
        _ordered(name, row["item"], row["count"]),
        ("item", {"name": row["item"]}),
    )
    text = f"{name} takes over the {row['item']} of {row['customer']}. How many {row['item']} are in stock?"
    return Request(text=text, plan=plan, answer=str(stock))


def _free(world: State, day: str) -> list[int]:
    taken = {row["hour"] for row in world["bookings"] if row["day"] == day}
    return [hour for hour in HOURS if hour not in taken]


def _booked(day: str, hour: int, name: str) -> tuple[str, Mapping[str, JSON]]:
    return "book", {"day": day, "hour": hour, "name": name}


def _book(world: State, random_: random.Random) -> Request:
    name, day = _one_name(world, random_), random_.choice(DAYS)
    hour = random_.choice(_free(world, day))
    return Request(text=f"Book {name} on {day} at {hour}.", plan=(_booked(day, hour, name),))


def _drop(world: State, random_: random.Random) -> Request:
    row = random_.choice(world["bookings"])
    plan = (("drop", {"day": row["day"], "hour": row["hour"]}),)
    return Request(text=f"Free {row['day']} at {row['hour']}.", plan=plan)


def _who(world: State, random_: random.Random) -> Request:
    row = random_.choice(world["bookings"])
    text = f"Who comes on {row['day']} at {row['hour']}?"
    return Request(text=text, plan=(("day", {"day": row["day"]}),), answer=row["name"])


def _first_free(world: State, random_: random.Random) -> Request:
    name, day = _one_name(world, random_), random_.choice([row["day"] for row in world["bookings"]])
    plan = (("day", {"day": day}), _booked(day, _free(world, day)[0], name))
    return Request(text=f"Book {name} on {day} at the first free hour.", plan=plan)


def _once(world: State, random_: random.Random) -> dict[str, JSON] | None:
    """A booking of somebody who comes only once that day."""
    pairs = [(row["day"], row["name"]) for row in world["bookings"]]
    rows = [row for row in world["bookings"] if pairs.count((row["day"], row["name"])) == 1]
    return random_.choice(rows) if rows else None


def _drop_named(world: State, random_: random.Random) -> Request | None:
    row = _once(world, random_)
    if row is None:
        return None
    plan = (("day", {"day": row["day"]}), ("drop", {"day": row["day"], "hour": row["hour"]}))
    return Request(text=f"Free the hour of {row['name']} on {row['day']}.", plan=plan)


def _taken(world: State, random_: random.Random) -> Request:
    name, row = _one_name(world, random_), random_.choice(world["bookings"])
    text = f"Book {name} on {row['day']} at {row['hour']}. If that is taken, book nothing and say by whom."
    return Request(text=text, plan=(("day", {"day": row["day"]}),), answer=row["name"])


def _move_named(world: State, random_: random.Random) -> Request | None:
    row = _once(world, random_)
    if row is None:
        return None
    day, hour = row["day"], random_.choice(_free(world, row["day"]))
    plan = (("day", {"day": day}), ("drop", {"day": day, "hour": row["hour"]}), _booked(day, hour, row["name"]))
    return Request(text=f"Move {row['name']} on {day} to {hour}.", plan=plan)


def _move_day(world: State, random_: random.Random) -> Request | None:
    row = _once(world, random_)
    if row is None:
        return None
    other = random_.choice([day for day in DAYS if day != row["day"]])
    plan = (
        ("day", {"day": row["day"]}),
        ("drop", {"day": row["day"], "hour": row["hour"]}),
        ("day", {"day": other}),
        _booked(other, _free(world, other)[0], row["name"]),
    )
    return Request(text=f"Move {row['name']} from {row['day']} to the first free hour of {other}.", plan=plan)


KINDS: Mapping[str, Kind] = {
    "order": Kind(domain="shop", calls=1, draw=_order),
    "restock": Kind(domain="shop", calls=1, draw=_restock),
    "cancel": Kind(domain="shop", calls=1, draw=_with_number("Cancel", "cancel")),
    "ship": Kind(domain="shop", calls=1, draw=_with_number("Ship", "ship")),
    "ask_stock": Kind(domain="shop", calls=1, draw=_ask("stock", "How many {item} are in stock?")),
    "ask_price": Kind(domain="shop", calls=1, draw=_ask("price", "What does one {item} cost?")),
    "too_many": Kind(domain="shop", calls=1, draw=_too_many),
    "cancel_named": Kind(domain="shop", calls=2, draw=_with_name("Cancel", "cancel")),
    "ship_named": Kind(domain="shop", calls=2, draw=_with_name("Ship", "ship")),
    "order_rest": Kind(domain="shop", calls=2, draw=_order_rest),
    "enough": Kind(domain="shop", calls=2, draw=_enough),
    "order_left": Kind(domain="shop", calls=2, draw=_order_left),
    "swap": Kind(domain="shop", calls=3, draw=_swap),
    "cancel_all": Kind(domain="shop", calls=3, draw=_all_of("Cancel", "cancel")),
    "ship_all": Kind(domain="shop", calls=3, draw=_all_of("Ship", "ship")),
    "hand_over": Kind(domain="shop", calls=4, draw=_hand_over),
    "book": Kind(domain="calendar", calls=1, draw=_book),
    "drop": Kind(domain="calendar", calls=1, draw=_drop),
    "who": Kind(domain="calendar", calls=1, draw=_who),
    "taken": Kind(domain="calendar", calls=1, draw=_taken),
    "first_free": Kind(domain="calendar", calls=2, draw=_first_free),
    "drop_named": Kind(domain="calendar", calls=2, draw=_drop_named),
    "move_named": Kind(domain="calendar", calls=3, draw=_move_named),
    "move_day": Kind(domain="calendar", calls=4, draw=_move_day),
}
