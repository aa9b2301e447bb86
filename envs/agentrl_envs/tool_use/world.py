"""The world of one rollout: customers, items, orders and bookings in an SQLite database in memory.

What a method cannot do is a `ValueError` whose text is for the policy. No text of the policy ever becomes SQL.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from agentrl.api import JSON, DataError

State: TypeAlias = dict[str, list[dict[str, JSON]]]
"""Rows by table, in the order of their columns."""

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "customers": ("name",),
    "items": ("name", "price", "stock"),
    "orders": ("id", "customer", "item", "count", "status"),
    "bookings": ("day", "hour", "name"),
}
DAYS = ("mon", "tue", "wed", "thu", "fri")
HOURS = range(9, 14)
NEW = "new"
"""What stands for the id of an order that was made in the rollout: which number it got does not matter."""

_SCHEMA = f"""
PRAGMA page_size = 512;
CREATE TABLE customers (name TEXT PRIMARY KEY NOT NULL) WITHOUT ROWID;
CREATE TABLE items (
    name TEXT PRIMARY KEY NOT NULL, price INTEGER NOT NULL, stock INTEGER NOT NULL CHECK (stock >= 0)
) WITHOUT ROWID;
CREATE TABLE orders (
    id INTEGER PRIMARY KEY, customer TEXT NOT NULL REFERENCES customers, item TEXT NOT NULL REFERENCES items,
    count INTEGER NOT NULL CHECK (count > 0), status TEXT NOT NULL CHECK (status IN ('open', 'shipped', 'cancelled'))
);
CREATE TABLE bookings (
    day TEXT NOT NULL CHECK (day IN {DAYS}), hour INTEGER NOT NULL CHECK (hour BETWEEN {HOURS[0]} AND {HOURS[-1]}),
    name TEXT NOT NULL REFERENCES customers, PRIMARY KEY (day, hour)
) WITHOUT ROWID;
PRAGMA foreign_keys = ON;
"""


class World:
    """A world filled with `rows` by table. Raises DataError for rows that it cannot hold."""

    def __init__(self, rows: Mapping[str, Sequence[Mapping[str, JSON]]]) -> None:
        # A tool may run in another thread than the last one, never in two at once.
        self._database = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        self._database.executescript(_SCHEMA)
        for table in rows:
            if table not in COLUMNS:
                raise DataError(f"the world has no table '{table}' ({', '.join(COLUMNS)})")
        for table, columns in COLUMNS.items():
            for row in rows.get(table, ()):
                self._insert(table, columns, row)
        self._newest = self._one("SELECT coalesce(max(id), 0) FROM orders")[0]

    def _insert(self, table: str, columns: Sequence[str], row: Mapping[str, JSON]) -> None:
        if set(row) != set(columns):
            raise DataError(f"a row of '{table}' has the columns {', '.join(columns)}, not {', '.join(row)}")
        marks = ", ".join("?" * len(columns))
        try:
            self._database.execute(f"INSERT INTO {table} VALUES ({marks})", [row[column] for column in columns])
        except sqlite3.Error as error:
            raise DataError(f"the row {dict(row)} of '{table}' cannot be: {error}") from error

    def _one(self, question: str, *values: JSON) -> tuple[JSON, ...]:
        return self._database.execute(question, values).fetchone() or ()

    def item(self, name: str) -> str:
        """Price and stock of an item."""
        price, stock = self._item(name)
        return f"price {price}, stock {stock}"

    def orders(self, customer: str) -> str:
        """A customer's orders, the oldest first."""
        self._customer(customer)
        rows = self._database.execute(
            "SELECT id, count, item, status FROM orders WHERE customer = ? ORDER BY id", (customer,)
        )
        return "\n".join(f"{number}: {count} {item}, {status}" for number, count, item, status in rows) or "none"

    def order(self, customer: str, item: str, count: int) -> str:
        """Make an order and take its items from the stock."""
        self._customer(customer)
        stock = self._item(item)[1]
        if count < 1:
            raise ValueError("count must be at least 1")
        if count > stock:
            raise ValueError(f"only {stock} {item} in stock")
        self._database.execute("UPDATE items SET stock = stock - ? WHERE name = ?", (count, item))
        number = self._one(
            "INSERT INTO orders (customer, item, count, status) VALUES (?, ?, ?, 'open') RETURNING id",
            customer,
            item,
            count,
        )[0]
        return f"order {number}"

    def cancel(self, order: int) -> str:
        """Cancel an open order and put its items back."""
        item, count = self._open(order)
        self._database.execute("UPDATE orders SET status = 'cancelled' WHERE id = ?", (order,))
        self._database.execute("UPDATE items SET stock = stock + ? WHERE name = ?", (count, item))
        return "ok"

    def ship(self, order: int) -> str:
        """Ship an open order."""
        self._open(order)
        self._database.execute("UPDATE orders SET status = 'shipped' WHERE id = ?", (order,))
        return "ok"

    def restock(self, item: str, count: int) -> str:
        """Add to the stock of an item."""
        self._item(item)
        if not 1 <= count <= 1000:
            raise ValueError("count must be 1 to 1000")
        self._database.execute("UPDATE items SET stock = stock + ? WHERE name = ?", (count, item))
        return "ok"

    def day(self, day: str) -> str:
        """Who comes on a day, and which hours are free."""
        self._hour(day, HOURS[0])
        rows = self._database.execute("SELECT hour, name FROM bookings WHERE day = ? ORDER BY hour", (day,))
        booked = dict(rows.fetchall())
        return "\n".join(f"{hour} {booked.get(hour, 'free')}" for hour in HOURS)

    def book(self, day: str, hour: int, name: str) -> str:
        """Book an hour."""
        self._hour(day, hour)
        self._customer(name)
        taken = self._one("SELECT name FROM bookings WHERE day = ? AND hour = ?", day, hour)
        if taken:
            raise ValueError(f"taken by {taken[0]}")
        self._database.execute("INSERT INTO bookings VALUES (?, ?, ?)", (day, hour, name))
        return "ok"

    def drop(self, day: str, hour: int) -> str:
        """Free an hour."""
        self._hour(day, hour)
        if not self._one("DELETE FROM bookings WHERE day = ? AND hour = ? RETURNING name", day, hour):
            raise ValueError(f"{day} {hour} is free already")
        return "ok"

    def _customer(self, name: str) -> None:
        if not self._one("SELECT name FROM customers WHERE name = ?", name):
            raise ValueError(f"no customer {name}")

    def _item(self, name: str) -> tuple[int, int]:
        found = self._one("SELECT price, stock FROM items WHERE name = ?", name)
        if not found:
            raise ValueError(f"no item {name}")
        return found[0], found[1]

    def _open(self, number: int) -> tuple[str, int]:
        found = self._one("SELECT item, count, status FROM orders WHERE id = ?", number) if number < 2**63 else ()
        if not found:
            raise ValueError(f"no order {number}")
        if found[2] != "open":
            raise ValueError(f"order {number} is {found[2]}")
        return found[0], found[1]

    def _hour(self, day: str, hour: int) -> None:
        if day not in DAYS:
            raise ValueError(f"day must be one of {', '.join(DAYS)}")
        if hour not in HOURS:
            raise ValueError(f"hour must be {HOURS[0]} to {HOURS[-1]}")

    def state(self) -> State:
        """All rows; orders made since the start have the id `NEW`."""
        found: State = {}
        for table, columns in COLUMNS.items():
            rows = self._database.execute(f"SELECT * FROM {table} ORDER BY {', '.join(columns[:2])}")
            found[table] = [dict(zip(columns, row, strict=True)) for row in rows]
        for row in found["orders"]:
            if row["id"] > self._newest:
                row["id"] = NEW
        return found

    def snapshot(self) -> bytes:
        """The whole database, which `restore` takes."""
        return self._database.serialize()

    def restore(self, snapshot: bytes) -> None:
        """Put the database back to a snapshot."""
        self._database.deserialize(snapshot)
        self._database.execute("PRAGMA foreign_keys = ON")

    def close(self) -> None:
        """Free the database; the world is of no more use."""
        self._database.close()
