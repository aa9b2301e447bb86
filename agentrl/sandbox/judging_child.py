"""What runs in a worker process for judging: reads calls from a pipe, makes them, writes their results.

Started as a script with the standard library alone; it imports what it is told to call. One line of JSON in, one line
out. The processor time of a call is bounded by a timer whose signal ends the process, whatever the code is doing.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import json
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any, TextIO

_PR_SET_PDEATHSIG = 1
_OUT_OF_MEMORY = 77
"""Exit status of a worker that ran out of memory: its heap is in no state to go on with."""


def main() -> None:
    """Serve calls until the parent closes the pipe."""
    parent, memory_mb, path = int(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3])
    _die_with(parent)
    # Private writable memory: the address space of honest libraries is far larger than what they touch.
    resource.setrlimit(resource.RLIMIT_DATA, (memory_mb << 20, memory_mb << 20))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.path[:] = path
    replies = os.fdopen(os.dup(1), "w", encoding="ascii")
    # What the called code prints must not look like a reply.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    _say(replies, {"ready": True})
    for line in sys.stdin:
        request = json.loads(line)
        try:
            _say(replies, _load(request) if "load" in request else _call(request))
        except MemoryError:
            os._exit(_OUT_OF_MEMORY)


def _die_with(parent: int) -> None:
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        # It died before it could be watched.
        os._exit(0)


def _say(replies: TextIO, message: dict[str, Any]) -> None:
    replies.write(json.dumps(message) + "\n")
    replies.flush()


@functools.cache
def _function(name: str) -> Callable[..., Any]:
    module, _, attribute = name.partition(":")
    function: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
    return function


def _load(request: dict[str, Any]) -> dict[str, Any]:
    try:
        _function(request["load"])
    except MemoryError:
        raise
    except Exception:
        return {"failed": traceback.format_exc()}
    return {"loaded": True}


def _call(request: dict[str, Any]) -> dict[str, Any]:
    function = _function(request["function"])
    signal.setitimer(signal.ITIMER_PROF, request["seconds"])
    try:
        return {"value": json.loads(json.dumps(function(*request["args"])))}
    except MemoryError:
        raise
    except Exception:
        return {"failed": traceback.format_exc()}
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


if __name__ == "__main__":
    main()
