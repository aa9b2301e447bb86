"""Frames on the pipe between a worker and its owner, and the payload that a request carries.

A header is a 4-byte length and that many bytes of JSON. It never holds anything of a program: the worker reads it,
and the worker's memory is inherited by every program. After a request's header come payloads, each read by the one
process that needs it: a 4-byte length, JSON of that length, and the raw bytes that the JSON announces.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

_LENGTH = struct.Struct("=I")
LENGTH_BYTES = _LENGTH.size


class Payload(NamedTuple):
    """What one process is given. Example: `Payload(meta={"program": "print(1)"}, files={"a.txt": b"x"}, stdin=b"")`."""

    meta: dict[str, Any]
    files: dict[str, bytes]
    stdin: bytes


def pack_header(header: Mapping[str, Any]) -> bytes:
    """A header as bytes."""
    text = json.dumps(header).encode()
    return _LENGTH.pack(len(text)) + text


def pack_payload(meta: Mapping[str, Any], files: Mapping[str, bytes], stdin: bytes) -> bytes:
    """A payload as bytes; lone surrogates in texts survive."""
    head = dict(meta) | {"files": [[path, len(data)] for path, data in files.items()], "stdin": len(stdin)}
    return b"".join((pack_header(head), *files.values(), stdin))


def unpack_payload(data: bytes) -> Payload:
    """Inverse of `pack_payload`."""
    (length,) = _LENGTH.unpack_from(data)
    meta = json.loads(data[LENGTH_BYTES : LENGTH_BYTES + length])
    place = LENGTH_BYTES + length
    files = {}
    for path, size in meta.pop("files"):
        files[path] = data[place : place + size]
        place += size
    return Payload(meta=meta, files=files, stdin=data[place : place + meta.pop("stdin")])


def header_length(prefix: bytes) -> int:
    """The length of the JSON that follows a 4-byte prefix."""
    return int(_LENGTH.unpack(prefix)[0])


def read_exactly(descriptor: int, size: int) -> bytes:
    """Read `size` bytes. Raises EOFError when the pipe ends before."""
    parts = []
    while size:
        part = os.read(descriptor, min(size, 1 << 20))
        if not part:
            raise EOFError("the pipe ended in the middle of a frame")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def read_header(descriptor: int) -> dict[str, Any] | None:
    """Read a header, or None when the pipe was closed between frames."""
    prefix = os.read(descriptor, LENGTH_BYTES)
    if not prefix:
        return None
    prefix += read_exactly(descriptor, LENGTH_BYTES - len(prefix))
    header: dict[str, Any] = json.loads(read_exactly(descriptor, header_length(prefix)))
    return header


def read_payload(descriptor: int, size: int) -> Payload:
    """Read a payload of `size` bytes in all."""
    return unpack_payload(read_exactly(descriptor, size))


def write_header(descriptor: int, header: Mapping[str, Any]) -> None:
    """Write a header."""
    write_all(descriptor, memoryview(pack_header(header)))


def write_all(descriptor: int, view: memoryview) -> None:
    """Write every byte of `view`."""
    while view:
        view = view[os.write(descriptor, view) :]
