"""The service `judge`: what is asked, what is tried again, and what is given up, against a scripted local server."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from agentrl.api import ConfigError, JudgeUnavailable, keyed_seed
from agentrl.config import JudgeConfig, Layer, SandboxConfig, parse
from agentrl.endpoint import JudgeEndpoint
from agentrl.loops.wiring import close_services, endpoint_settings, start_services
from tests.scripted_judge import Reply, ScriptedJudge, says, scripted_judge

SCHEMA = {
    "type": "object",
    "properties": {"score": {"type": "integer", "minimum": 1, "maximum": 5}},
    "required": ["score"],
    "additionalProperties": False,
}
GOOD = says(score=3)


def in_turn(*replies: Reply) -> Callable[[dict[str, Any]], Reply]:
    """The replies one after the other, the last for good."""
    left = list(replies)
    return lambda body: left.pop(0) if len(left) > 1 else left[0]


def ask(judge: ScriptedJudge, times: int = 1, **changes: Any) -> list[Any]:
    """Replies to `times` questions asked at once; a refusal is its text."""

    async def main() -> list[Any]:
        endpoint = JudgeEndpoint(endpoint_settings(judge.config(**changes), "test"))
        try:
            return await asyncio.gather(
                *(endpoint.ask("Judge.", f"é \ud800 {n}", schema=SCHEMA, seed=n) for n in range(times)),
                return_exceptions=True,
            )
        finally:
            await endpoint.close()

    return [str(one) if isinstance(one, JudgeUnavailable) else one for one in asyncio.run(main())]


def test_what_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY", "sk-secret\n")
    with scripted_judge(in_turn(GOOD)) as judge:
        found = ask(judge, api_key_env="A_KEY", max_tokens=77, temperature=0.5, seed=9, endpoint=judge.url + "/")
    assert found == [{"score": 3}]
    assert judge.paths == ["/v1/chat/completions"]
    assert judge.headers[0]["authorization"] == "Bearer sk-secret"
    body = judge.asked[0]
    assert body["messages"] == [{"role": "system", "content": "Judge."}, {"role": "user", "content": "é \ud800 0"}]
    assert body["response_format"]["json_schema"]["schema"] == SCHEMA
    assert (body["model"], body["max_tokens"], body["temperature"]) == ("scripted", 77, 0.5)
    assert body["seed"] == keyed_seed(9, 0, 0) >> 32 < 2**31


def test_further_fields_are_sent_and_ours_can_be_left_out() -> None:
    body = {"response_format": None, "max_tokens": None, "max_completion_tokens": 9, "top_p": 0.5}
    with scripted_judge(in_turn(GOOD)) as judge:
        assert ask(judge, body=body) == [{"score": 3}]
    assert judge.asked[0].keys() == {"model", "messages", "temperature", "seed", "max_completion_tokens", "top_p"}


@pytest.mark.parametrize("body", [{"model": "m"}, {"messages": []}, {"stream": True}, {"temperature": 1}, {"seed": 0}])
def test_fields_that_are_set_elsewhere_are_refused(body: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"judge\.body = .*should not hold"):
        parse([Layer("test", {"judge": {"body": body}})])


def test_no_key_is_sent_without_one() -> None:
    with scripted_judge(in_turn(GOOD)) as judge:
        ask(judge)
    assert "authorization" not in judge.headers[0]


@pytest.mark.parametrize(
    "bad",
    [
        Reply(status=500, raw="boom"),
        Reply(status=503, raw=""),
        Reply(status=429, raw="slow down"),
        Reply(status=429, raw="slow down", headers={"Retry-After": "0"}),
        Reply(raw="<html>"),
        Reply(raw='{"choices": []}'),
        Reply(raw="[" * 100_000),
        Reply(raw="null"),
        Reply(content=None),
        Reply(content="I give it a 3."),
        Reply(content='{"score": 3'),
        Reply(content='```json\n{"score": 3}\n```'),
        Reply(content='{"score": 3} {"score": 5}'),
        Reply(content='{"score": 3, "score": 5}'),
        Reply(content='{"score": NaN}'),
        Reply(content='{"score": true}'),
        Reply(content='{"score": "3"}'),
        Reply(content='{"score": 2.5}'),
        Reply(content='{"score": 6}'),
        Reply(content='{"score": 0}'),
        Reply(content='{"score": 3, "more": 1}'),
        Reply(content="{}"),
        Reply(content="3"),
        Reply(content='{"score": 3}', finish="length"),
        Reply(content='{"score": 3}', delay=10.0),
        Reply(raw="", headers={"Content-Length": "100"}),
    ],
    ids=range(26),
)
def test_a_bad_reply_is_asked_again_with_another_seed_and_given_up_in_the_end(bad: Reply) -> None:
    limit = {"timeout_seconds": 1.0} if bad.delay or "Content-Length" in bad.headers else {}
    with scripted_judge(in_turn(bad, GOOD)) as judge:
        assert ask(judge, **limit) == [{"score": 3}]
    assert len({body["seed"] for body in judge.asked}) == 2
    with scripted_judge(in_turn(bad)) as judge:
        found = ask(judge, retries=1, **limit)
    assert len(judge.asked) == 2
    assert found[0].startswith(f"the judge at {judge.url} gave no verdict in 2 tries: ")


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422, 301])
def test_what_another_try_cannot_mend_is_given_up_at_once(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY", "sk-secret")
    with scripted_judge(in_turn(Reply(status=status, raw="no key sk-secret here\nor so"))) as judge:
        found = ask(judge, api_key_env="A_KEY")
    assert len(judge.asked) == 1
    assert found == [f"the judge at {judge.url} gave no verdict in 1 try: status {status}: no key *** here or so"]


def test_an_endpoint_that_is_not_there_is_tried_and_given_up() -> None:
    with scripted_judge(in_turn(GOOD)) as judge:
        pass
    assert "gave no verdict in 3 tries: ConnectError" in ask(judge, retries=2)[0]


def test_pauses_double_and_follow_what_the_endpoint_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def note(seconds: float) -> None:
        pauses.append(seconds)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", note)
    busy = Reply(status=503, raw="")
    replies = (busy, Reply(status=429, raw="", headers={"Retry-After": "7"}), busy, busy)
    with scripted_judge(in_turn(*replies, Reply(status=429, raw="", headers={"Retry-After": "9999"}), GOOD)) as judge:
        assert ask(judge, retries=5, backoff_seconds=0.5) == [{"score": 3}]
    assert [pause for pause in pauses if pause] == [0.5, 7.0, 2.0, 4.0, 60.0]


@pytest.mark.parametrize("cap", [1, 3])
def test_no_more_requests_at_once_than_allowed(cap: int) -> None:
    together = threading.Barrier(cap, timeout=60)
    with scripted_judge(lambda body: Reply('{"score": 3}', together=together)) as judge:
        assert ask(judge, 12, concurrency=cap) == [{"score": 3}] * 12
    assert judge.most == cap
    assert len({body["seed"] for body in judge.asked}) == 12


def start(**judge: Any) -> None:
    async def main() -> None:
        await close_services(start_services(frozenset({"judge"}), SandboxConfig(), "rubric", JudgeConfig(**judge)))

    asyncio.run(main())


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, ["rubric needs the service 'judge'", "set judge.endpoint", "judge.model"]),
        ({"endpoint": "http://localhost:8000/v1"}, ["judge.model is missing"]),
        (
            {"endpoint": "http://localhost:8000/v1", "model": "m", "api_key_env": "NOT_SET_HERE"},
            ["judge.api_key_env = 'NOT_SET_HERE'", "holds no key"],
        ),
        (
            {"endpoint": "http://localhost:8000/v1", "model": "m", "api_key_env": "ODD_KEY"},
            ["judge.api_key_env = 'ODD_KEY'", "holds no key"],
        ),
    ],
)
def test_what_is_missing_is_said_at_the_start(
    settings: dict[str, Any], words: Iterable[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ODD_KEY", "a\nb")
    with pytest.raises(ConfigError) as error:
        start(**settings)
    assert all(word in str(error.value) for word in words)


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("localhost:8000", "such as http://localhost:8000/v1"),
        ("ftp://host/v1", "such as http://localhost:8000/v1"),
        ("http://", "such as http://localhost:8000/v1"),
        ("http://host:port/v1", "such as http://localhost:8000/v1"),
        ("http://[host/v1", "such as http://localhost:8000/v1"),
        ("http://host/v 1", "such as http://localhost:8000/v1"),
        ("http://host/v1?key=1", "such as http://localhost:8000/v1"),
        ("https://me:secret@host/v1", "judge.api_key_env"),
        ("http://host/v1/chat/completions/", "should end before /chat/completions"),
    ],
)
def test_an_address_that_cannot_be_one_is_refused(address: str, words: str) -> None:
    with pytest.raises(ConfigError, match=r"judge\.endpoint") as error:
        parse([Layer("test", json.loads(json.dumps({"judge": {"endpoint": address}})))])
    assert words in str(error.value)
