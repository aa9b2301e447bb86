"""A loaded program that stays alive and takes commands: both the program's side and the worker's side of it.

The worker's side relays; a worker that has held a box is never used for another program.
"""

from __future__ import annotations

import _socket
import os
import select
import stat
import sys
import time
from typing import Any

from agentrl.sandbox.inside import frames, plain, program
from agentrl.sandbox.inside.watch import SAMPLE_EVERY, Tree

_LONGEST_REPLY = 8 << 20


def serve_box(source: str, link: _socket.socket, _: program.Results, output_limit: int) -> int:
    """The program's side: load the program, then do what each line asks. Returns the exit status."""
    results = program.Results(link.fileno())
    module = program.load_or_report(program.Program(source), results)
    if module is None:
        return 1
    module.__dict__["__read_file__"] = _read_file
    _flush()
    results.send({"load": "ok"})
    program.Captured.limit = output_limit
    for line in os.fdopen(link.detach(), "rb"):
        command = plain.parse(line)
        if command["do"] == "call":
            program.make_call(module, command, results, flush=_flush)
        else:
            record = _execute(command["source"], module.__dict__)
            _flush()
            results.send(record)
    return 0


def _execute(source: str, space: dict[str, Any]) -> dict[str, Any]:
    try:
        exec(compile(source, "<input>", "exec", dont_inherit=True), space)
    except BaseException as error:
        program.print_error(error, skip=1)
        reason, text = program.describe_error(error)
        if isinstance(error, SyntaxError):
            reason = "syntax_error"
        return {"end": reason, "error": text}
    return {"end": "ok"}


def _read_file(path: str, limit: int) -> bytes:
    """The head of a regular file; a pipe or device of the program's making would hang the command."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"'{path}' is no regular file")
        return os.read(descriptor, limit)
    finally:
        os.close(descriptor)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        stream.flush()


class Relay:
    """The worker's side: sends one command at a time and waits for its reply, its limits, or the program's end."""

    def __init__(self, tree: Tree, link: _socket.socket, requests: int) -> None:
        self._tree = tree
        self._link = link
        self._requests = requests
        self._began = time.monotonic()

    def command(self, line: bytes, seconds: float) -> tuple[dict[str, Any], bytes]:
        """Send `line` (none for the loading of the program); returns facts and the reply line, empty if none came."""
        self._tree.streams.rewind()
        self._tree.new_allowance()
        began = time.monotonic()
        self._link.settimeout(seconds)
        try:
            self._link.sendall(line)
        except TimeoutError:
            self._tree.stop("wall")
        except ConnectionError:
            # The program is gone, which shows below.
            line = b""
        reply = self._wait(began + seconds)
        facts = {"stopped": self._tree.stopped, "seconds": time.monotonic() - began, "alive": not self._tree.ended}
        return facts, reply

    def _wait(self, deadline: float) -> bytes:
        tree = self._tree
        poller = select.poll()
        poller.register(tree.descriptor, select.POLLIN)
        poller.register(self._link, select.POLLIN)
        poller.register(self._requests, 0)
        for pipe in tree.streams.descriptors:
            poller.register(pipe, select.POLLIN)
        received = bytearray()
        next_sample = time.monotonic() + SAMPLE_EVERY
        while not tree.ended:
            now = time.monotonic()
            if now >= next_sample:
                next_sample = now + SAMPLE_EVERY
                tree.sample()
            if now >= deadline:
                tree.stop("wall")
            for descriptor, _ in poller.poll(max(0.0, min(deadline, next_sample) - now) * 1000 + 1):
                if descriptor == tree.descriptor:
                    tree.ended = True
                elif descriptor == self._requests:
                    raise SystemExit("the owner of this worker is gone")
                elif descriptor == self._link.fileno():
                    part = self._link.recv(1 << 16)
                    received += part
                    if not part:
                        poller.unregister(descriptor)
                elif not tree.streams.drain(tree.streams.descriptors.index(descriptor)):
                    poller.unregister(descriptor)
                if tree.streams.full or len(received) > _LONGEST_REPLY:
                    tree.stop("output")
            if received.endswith(b"\n"):
                break
        for place in range(3):
            tree.streams.drain(place)
        return bytes(received.partition(b"\n")[0])


def relay_box(tree: Tree, link: _socket.socket, seconds: float, requests: int, answers: int) -> None:
    """Serve one box until its owner closes the pipe or the program is gone."""
    relay = Relay(tree, link, requests)
    line = b""
    while True:
        facts, reply = relay.command(line, seconds)
        frames.write_header(answers, {"facts": facts, "sizes": [*tree.streams.sizes[:2], len(reply)]})
        tree.streams.write_to(answers, streams=2)
        frames.write_all(answers, memoryview(reply))
        header = frames.read_header(requests)
        if header is None or not facts["alive"]:
            return
        line = frames.read_exactly(requests, header["payloads"][0])
        seconds = header["seconds"]
