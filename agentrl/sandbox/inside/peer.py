"""Calls between two processes that do not trust each other: plain data by value, everything else by reference.

Both sides of the link run this code. Each line is a JSON object: a request `{"op": name, "args": packed text}` or the
answer to the newest open request, `{"ok": packed text, "args": packed text | absent}` or `{"error": {...}}`. While a
side waits for its answer it serves the requests of the other, so that calls nest. `args` in an answer are the
arguments as the call left them, when it changed them; the caller's own lists and dicts are changed likewise.

What each side allows the other to do is its `Guard`. The side of the tests gives nothing away but what it hands over:
functions to call, iterators to advance, and attributes of objects of the classes that the tests define.
"""

from __future__ import annotations

import _socket
import builtins
from collections.abc import Callable, Iterator
from typing import Any

from agentrl.sandbox.inside import plain

GONE = "the other side is gone"
_LONGEST_LINE = 8 << 20
_NAMED_FUNCTIONS = ("builtins", "math", "operator")


class LinkBroken(Exception):
    """The other side is gone or wrote what is no message."""


class RemoteError(Exception):
    """An error of the other side that has no built-in class of its own here."""


class Remote:
    """Stands for an object of the other side.

    It can be called, indexed, iterated, measured and asked for attributes. It is equal to itself alone, true, and
    cannot be compared, searched or calculated with: those would let the other side's code answer the question that is
    asked about it.
    """

    def __init__(self, peer: Peer, number: int, type_name: str) -> None:
        object.__setattr__(self, "_remote", (peer, number, type_name))

    def __call__(self, /, *args: object, **kwargs: object) -> object:
        return self._remote[0].ask("call", self, list(args), kwargs)

    def __getattr__(self, name: str) -> Any:
        return self._remote[0].ask("get", self, name)

    def __setattr__(self, name: str, value: object) -> None:
        self._remote[0].ask("set", self, name, value)

    def __getitem__(self, key: object) -> object:
        return self._remote[0].ask("item", self, key)

    def __setitem__(self, key: object, value: object) -> None:
        self._remote[0].ask("set_item", self, key, value)

    def __len__(self) -> int:
        return self._remote[0].ask("len", self)  # type: ignore[no-any-return]

    def __iter__(self) -> Iterator[object]:
        return self._remote[0].ask("iter", self)  # type: ignore[no-any-return]

    def __next__(self) -> object:
        return self._remote[0].ask("next", self)

    def __contains__(self, value: object) -> bool:
        raise TypeError(f"an object of the class {self._remote[2]} cannot be searched from another process")

    def __bool__(self) -> bool:
        return True

    def __str__(self) -> str:
        return self._remote[0].ask("str", self)  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"<an object of the class {self._remote[2]}>"

    def __hash__(self) -> int:
        return hash(self._remote[1])

    def __eq__(self, other: object) -> bool:
        return self is other


class Guard:
    """What the other side may do with this side's objects; this one, of the program's side, allows everything."""

    def check_export(self, value: object) -> None:
        """Raise CannotCross for a value that must not be handed over."""

    def check_attribute(self, owner: object, name: str) -> None:
        """Raise AttributeError for an attribute that must not be read or set."""


class CannotCross(Exception):
    """A value that this side cannot hand to the other."""


class TestsGuard(Guard):
    """The guard of the tests: `module` is the name of the module that they run as."""

    def __init__(self, module: str) -> None:
        self._module = module

    def check_export(self, value: object) -> None:
        # A frame, a module or a traceback would lead to everything that this process holds.
        if callable(value) or hasattr(type(value), "__next__") or type(value).__module__ == self._module:
            return
        raise CannotCross(f"the tests hand a value of type {type(value).__name__} to the program, which cannot cross")

    def check_attribute(self, owner: object, name: str) -> None:
        if name.startswith("_") or type(owner).__module__ != self._module:
            raise AttributeError(f"the attribute '{name}' of the tests' objects is out of reach")


class Peer:
    """One side of a link."""

    def __init__(self, link: _socket.socket, side: str, guard: Guard) -> None:
        self._link = link
        self._side = side
        self._guard = guard
        self._received = bytearray()
        self._exported: list[object] = []
        self._numbers: dict[int, int] = {}
        self._imported: dict[int, Remote] = {}
        self._error_classes: dict[str, type[Exception]] = {}
        self.broken = ""
        """Why the link failed, if it ever did; tests that catch every error must not hide it."""

    def ask(self, op: str, *args: object) -> Any:
        """Have the other side perform `op` and return or raise what comes of it. Raises LinkBroken."""
        sent = list(args)
        self.send({"op": op, "args": self._pack(sent)})
        while True:
            message = self.receive()
            if "op" in message:
                self.answer(message)
            elif "ok" in message:
                if "args" in message:
                    self._copy_back(sent, self._unpack(message["args"]))
                return self._unpack(message["ok"])
            else:
                raise self._error_from(message.get("error"))

    def serve(self) -> None:
        """Answer requests until the other side is gone."""
        while True:
            try:
                message = self.receive()
            except LinkBroken:
                return
            self.answer(message)

    def send(self, message: dict[str, Any]) -> None:
        """Write one line. Raises LinkBroken."""
        try:
            self._link.sendall(plain.dumps(message).encode() + b"\n")
        except OSError as error:
            raise self._break(str(error)) from None

    def receive(self) -> dict[str, Any]:
        """Read one line. Raises LinkBroken for an end, an overlong line, or anything but a JSON object."""
        while (end := self._received.find(b"\n")) < 0:
            try:
                part = self._link.recv(1 << 16)
            except OSError as error:
                raise self._break(str(error)) from None
            if not part:
                raise self._break(GONE)
            self._received += part
            if len(self._received) > _LONGEST_LINE:
                raise self._break("the other side sent too much")
        line = bytes(self._received[:end])
        del self._received[: end + 1]
        try:
            message = plain.parse(line)
        except ValueError:
            message = None
        if not isinstance(message, dict):
            raise self._break("the other side sent what is no message")
        return message

    def _break(self, why: str) -> LinkBroken:
        self.broken = self.broken or why
        return LinkBroken(why)

    def answer(self, message: dict[str, Any]) -> None:
        """Perform one request of the other side and send what comes of it. Raises LinkBroken."""
        answer: dict[str, Any]
        try:
            text = message["args"]
            args = self._unpack(text)
            value = self._perform(str(message["op"]), args)
            answer = {"ok": self._pack(value)}
            left = self._pack(args)
            if left != text:
                answer["args"] = left
        except LinkBroken:
            raise
        except BaseException as error:
            answer = {"error": self._describe(error)}
        self.send(answer)

    def _perform(self, op: str, args: list[Any]) -> object:
        if op == "names":
            return self.look_up(*args)
        owner = args[0]
        if op == "call":
            return self.call(owner, args[1], args[2])
        if op in ("get", "set"):
            self._guard.check_attribute(owner, args[1])
            if op == "get":
                return getattr(owner, args[1])
            setattr(owner, args[1], args[2])
            return None
        if op == "item":
            return owner[args[1]]
        if op == "set_item":
            owner[args[1]] = args[2]
            return None
        simple: dict[str, Callable[[Any], object]] = {"len": len, "iter": iter, "next": next, "str": str}
        return simple[op](owner)

    def look_up(self, names: list[str], entry_point: str | None) -> object:
        """What this side calls by these names; the program's side overrides it."""
        raise LookupError("this side has no names")

    def call(self, function: Callable[..., object], args: list[Any], kwargs: dict[str, Any]) -> object:
        """Call a function of this side; the program's side overrides it."""
        return function(*args, **kwargs)

    def mirror_error_class(self, name: str, bases: list[str]) -> type[Exception]:
        """A local class that stands for an error class of the other side."""
        if name not in self._error_classes:
            self._error_classes[name] = type(name, (_builtin_error(bases),), {"__module__": "program"})
        return self._error_classes[name]

    def _copy_back(self, originals: list[Any], changed: Any) -> None:
        """Give the caller's containers the contents that the call left in its copies of them."""
        if not isinstance(changed, list) or len(changed) != len(originals):
            raise self._break("the other side sent malformed arguments")
        for original, new in zip(originals, changed, strict=True):
            _change(original, new)

    def _pack(self, value: object) -> str:
        return plain.dumps(plain.pack(value, self._refer))

    def _unpack(self, text: Any) -> Any:
        try:
            return plain.loads(text, self._resolve)
        except (ValueError, AttributeError, IndexError) as error:
            raise self._break(f"the other side sent unreadable data: {error}") from None

    def _refer(self, value: object) -> list[object]:
        if isinstance(value, Remote):
            return ["theirs", value._remote[1]]
        module = getattr(value, "__module__", None) or getattr(type(value), "__module__", "")
        name = getattr(value, "__name__", "")
        if module in _NAMED_FUNCTIONS and callable(value) and getattr(_modules()[module], name, None) is value:
            return ["named", module, name]
        if id(value) not in self._numbers:
            self._guard.check_export(value)
            # The list keeps the object alive, so that its id stays its own.
            self._numbers[id(value)] = len(self._exported)
            self._exported.append(value)
        return ["mine", self._numbers[id(value)], type(value).__name__]

    def _resolve(self, mark: Any) -> object:
        if not isinstance(mark, list) or len(mark) < 2:
            raise ValueError("a malformed reference")
        if mark[0] == "theirs":
            number = mark[1]
            if type(number) is not int or not 0 <= number < len(self._exported):
                raise ValueError("an unknown reference")
            return self._exported[number]
        if mark[0] == "named" and mark[1] in _NAMED_FUNCTIONS:
            found = getattr(_modules()[mark[1]], str(mark[2]), None)
            # A program must not smuggle `eval` into the tests' hands.
            if not callable(found) or (self._side == "tests" and not isinstance(found, type)):
                raise ValueError("an unknown function")
            return found
        if mark[0] == "mine" and type(mark[1]) is int and len(mark) == 3:
            if mark[1] not in self._imported:
                self._imported[mark[1]] = Remote(self, mark[1], str(mark[2])[:100])
            return self._imported[mark[1]]
        raise ValueError("an unknown reference")

    def _describe(self, error: BaseException) -> dict[str, Any]:
        from agentrl.sandbox.inside.program import describe_error

        reason, text = describe_error(error)
        names = [kind.__name__ for kind in type(error).__mro__]
        try:
            args = plain.dumps(plain.pack(list(error.args)))
        except Exception:
            args = plain.dumps([text])
        return {"names": names, "args": args, "text": text, "reason": reason}

    def _error_from(self, described: Any) -> Exception:
        if not isinstance(described, dict) or not isinstance(described.get("names"), list):
            return self._break("the other side sent a malformed error")
        names = [str(name) for name in described["names"]]
        text = str(described.get("text"))
        try:
            args = plain.loads(described["args"])
        except (ValueError, KeyError, TypeError, AttributeError):
            args = [text]
        kind = next((self._error_classes[name] for name in names if name in self._error_classes), None)
        kind = kind or _builtin_error(names)
        try:
            error = kind(*args) if isinstance(args, list) else kind(text)
        except TypeError:
            error = RemoteError(text)
        # Read by whoever reports it: the error is the other side's, whatever its class.
        error.remote = (str(described.get("reason")), text)  # type: ignore[attr-defined]
        return error


def _builtin_error(names: list[str]) -> type[Exception]:
    """The first built-in exception class among names; SystemExit and its like become RemoteError: they end nothing."""
    if "Exception" not in names:
        return RemoteError
    for name in names:
        kind = getattr(builtins, name, None)
        if isinstance(kind, type) and issubclass(kind, Exception):
            return kind
    return RemoteError


def _modules() -> dict[str, Any]:
    import math
    import operator

    return {"builtins": builtins, "math": math, "operator": operator}


def _change(original: Any, new: Any) -> Any:
    """Make `original` equal to `new`, in place where it can be; returns what should stand in its place."""
    if type(original) is not type(new):
        return new
    if type(original) is list:
        kept = [_change(old, value) for old, value in zip(original, new, strict=False)]
        original[:] = kept + new[len(kept) :]
    elif type(original) is dict:
        items = {key: _change(original[key], value) if key in original else value for key, value in new.items()}
        original.clear()
        original.update(items)
    elif type(original) is set:
        original.clear()
        original.update(new)
    elif type(original) is tuple and len(original) == len(new):
        return tuple(_change(old, value) for old, value in zip(original, new, strict=True))
    else:
        return new
    return original
