"""A local OpenAI-compatible server that answers by a script, for tests of what asks a judge."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from agentrl.api import Rollout, Verdict, Verifier
from agentrl.config import JudgeConfig, SandboxConfig, parse_options
from agentrl.loops.wiring import close_services, services_for, start_services
from agentrl.rollouts.scoring import judge as judge_one
from agentrl.rollouts.scoring import judge_group

LINE = re.compile(r"<(?P<name>[a-z ]+) (?P<mark>[0-9a-f]{24})>\n(?P<text>.*?)\n</(?P=name) (?P=mark)>", re.DOTALL)


@dataclass(frozen=True)
class Reply:
    """What the server sends: a completion with `content`, or `raw` in its place.

    It comes after `delay` seconds, and when as many requests as `together` asks for are there.
    """

    content: str | None = None
    status: int = 200
    raw: str | None = None
    delay: float = 0.0
    together: threading.Barrier | None = None
    finish: str = "stop"
    headers: dict[str, str] = field(default_factory=dict)


def says(**value: Any) -> Reply:
    """A completion that is one JSON object."""
    return Reply(json.dumps(value))


Script = Callable[[dict[str, Any]], Reply]


class ScriptedJudge:
    """What was asked, and how to reach the server. most: the largest number of requests in flight at once."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.most = self.running = 0
        self.lock = threading.Lock()
        self.url = ""

    def config(self, **changes: Any) -> JudgeConfig:
        """The section `judge` that leads here; retries do not wait long."""
        return JudgeConfig(**{"endpoint": self.url, "model": "scripted", "backoff_seconds": 0.01, **changes})

    @property
    def contents(self) -> list[str]:
        """The user messages, in the order in which they came."""
        return [body["messages"][1]["content"] for body in self.asked]


@contextmanager
def scripted_judge(script: Script) -> Iterator[ScriptedJudge]:
    """A server on a free port of this machine, which ends with the context."""
    judge = ScriptedJudge(script)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with judge.lock:
                judge.asked.append(body)
                judge.headers.append({key.lower(): value for key, value in self.headers.items()})
                judge.paths.append(self.path)
                judge.running += 1
                judge.most = max(judge.most, judge.running)
                reply = judge.script(body)
            time.sleep(reply.delay)
            if reply.together is not None:
                reply.together.wait()
            with judge.lock:
                judge.running -= 1
            message = {"role": "assistant", "content": reply.content}
            choices = [{"index": 0, "message": message, "finish_reason": reply.finish}]
            text = json.dumps({"choices": choices}) if reply.raw is None else reply.raw
            try:
                self.send_response(reply.status)
                for key, value in {"Content-Length": str(len(text.encode())), **reply.headers}.items():
                    self.send_header(key, value)
                self.end_headers()
                self.wfile.write(text.encode())
            except (BrokenPipeError, ConnectionResetError):
                pass  # the client gave up: that is what some tests are about

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    judge.url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield judge
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def sections(body: dict[str, Any]) -> dict[str, str]:
    """The message as a careful reader takes it apart: by the mark that the instructions name, each section once."""
    instructions, content = (message["content"] for message in body["messages"])
    (mark,) = set(re.findall(r"the mark ([0-9a-f]{24})", instructions))
    found = LINE.findall(content)
    assert {one[1] for one in found} == {mark}
    assert content.count(mark) == 2 * len(found) + 1
    assert len({name for name, _, _ in found}) == len(found)
    rest = LINE.sub("", content).strip()
    assert rest == f"That was all the data with the mark {mark}. Judge now, in the form that was asked for."
    return {name: text for name, _, text in found}


def run(
    plugin: type[Verifier], server: ScriptedJudge, rollouts: Sequence[Rollout], *, service: Any = None, **options: Any
) -> list[Verdict]:
    """Verdicts on rollouts by a verifier that asks the server; `service` changes the section `judge`."""

    async def main() -> list[Verdict]:
        services = start_services(plugin.needs, SandboxConfig(), "test", server.config(**(service or {})))
        try:
            parsed = parse_options(plugin.Options, options, "options")
            verifier = plugin(parsed, services_for(plugin.needs, services))
            if plugin.scope == "group":
                return list(await judge_group(verifier, rollouts))
            return list(await asyncio.gather(*(judge_one(verifier, rollout) for rollout in rollouts)))
        finally:
            await close_services(services)

    return asyncio.run(main())
