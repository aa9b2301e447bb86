"""A model behind an OpenAI-compatible address that is asked for JSON: tried again, a few at once, never repaired."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agentrl.api import JSON, JSONTextError, JudgeUnavailable, keyed_seed, read_json, schema_error

LONGEST_PAUSE = 60.0
"""Seconds: no pause before another try is longer, whatever the endpoint asks for."""
_SHOWN = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointSettings:
    """Which model is asked where, and how. `endpoint` is what stands before `/chat/completions`.

    timeout_seconds: of one request. retries: further tries after the first. backoff_seconds: pause before the second
    try, doubled each time. concurrency: requests at once. body: further fields of each request; None leaves out one of
    ours.

    Example: `EndpointSettings(endpoint="http://localhost:8000/v1", model="judge")`.
    """

    endpoint: str
    model: str
    api_key: str | None = field(default=None, repr=False)
    timeout_seconds: float = 60.0
    retries: int = 3
    backoff_seconds: float = 1.0
    concurrency: int = 16
    max_tokens: int = 1024
    temperature: float = 0.0
    seed: int = 0
    body: Mapping[str, JSON] = field(default_factory=dict)


class JudgeEndpoint:
    """The service `judge` of `agentrl.api`. Nothing is sent before the first question."""

    def __init__(self, settings: EndpointSettings) -> None:
        import httpx2  # here: only who has a judge pays for the import

        self.settings = settings
        self._slots = asyncio.Semaphore(settings.concurrency)
        headers = {} if settings.api_key is None else {"Authorization": f"Bearer {settings.api_key}"}
        self._client = httpx2.AsyncClient(
            headers=headers, timeout=None, limits=httpx2.Limits(max_connections=settings.concurrency)
        )

    @property
    def temperature(self) -> float:
        """Sampling temperature of the replies."""
        return self.settings.temperature

    async def ask(
        self, instructions: str, content: str, *, schema: Mapping[str, JSON], seed: int = 0
    ) -> Mapping[str, JSON]:
        """The reply to `content`, read strictly and accepted by `schema`. Raises JudgeUnavailable.

        Every try has a sampling seed of its own: an endpoint that repeats itself would repeat a bad reply.
        """
        failure = _Failure("")
        for attempt in range(self.settings.retries + 1):
            if attempt:
                await asyncio.sleep(self._pause(attempt, failure.pause))
            body = self._body(instructions, content, schema, keyed_seed(self.settings.seed, seed, attempt) >> 32)
            try:
                async with self._slots:
                    return _reply(await self._post(body), schema)
            except _Failure as error:
                failure = error
                if failure.final:
                    break
        tries = f"{attempt + 1} {'tries' if attempt else 'try'}"
        raise JudgeUnavailable(f"the judge at {self.settings.endpoint} gave no verdict in {tries}: {failure}")

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    def _body(self, instructions: str, content: str, schema: Mapping[str, JSON], seed: int) -> bytes:
        shape = {"name": "reply", "strict": True, "schema": schema}
        body: dict[str, JSON] = {
            "model": self.settings.model,
            "messages": [{"role": "system", "content": instructions}, {"role": "user", "content": content}],
            "max_tokens": self.settings.max_tokens,
            "temperature": self.settings.temperature,
            "seed": seed,
            "response_format": {"type": "json_schema", "json_schema": shape},
        }
        body |= self.settings.body
        return json.dumps({key: value for key, value in body.items() if value is not None}).encode()

    def _pause(self, attempt: int, asked: float | None) -> float:
        """Seconds before a try: what the endpoint asked for, but no less than our own, doubled each time."""
        own: float = self.settings.backoff_seconds * 2.0 ** (attempt - 1)
        return min(max(own, asked or 0.0), LONGEST_PAUSE)

    async def _post(self, body: bytes) -> str:
        """The text of a reply with status 200. Raises _Failure."""
        import httpx2

        url = f"{self.settings.endpoint.rstrip('/')}/chat/completions"
        try:
            async with asyncio.timeout(self.settings.timeout_seconds):
                response = await self._client.post(url, content=body, headers={"Content-Type": "application/json"})
        except TimeoutError as error:
            raise _Failure(f"no reply within {self.settings.timeout_seconds:g} s") from error
        except httpx2.HTTPError as error:
            raise _Failure(f"{type(error).__name__}: {error}") from error
        if response.status_code == 200:
            return response.text
        final = response.status_code < 500 and response.status_code not in (408, 429)
        text = " ".join(response.text.split())[:_SHOWN]
        if self.settings.api_key:
            text = text.replace(self.settings.api_key, "***")  # it would be kept with the rollout
        raise _Failure(f"status {response.status_code}: {text}", final=final, pause=_seconds(response.headers))


class _Failure(Exception):
    """A try that gave nothing. final: another one would give the same. pause: seconds that the endpoint asks for."""

    def __init__(self, text: str, *, final: bool = False, pause: float | None = None) -> None:
        super().__init__(text)
        self.final = final
        self.pause = pause


def _seconds(headers: Mapping[str, str]) -> float | None:
    """What `Retry-After` asks for; a date is not read."""
    text = headers.get("retry-after", "").strip()
    return float(text) if text.isascii() and text.isdigit() and len(text) < 9 else None


def _reply(text: str, schema: Mapping[str, JSON]) -> Mapping[str, JSON]:
    """The value in a completion. Raises _Failure for anything but one object that the schema accepts."""
    try:
        choice: Any = json.loads(text)["choices"][0]
        content = choice["message"]["content"]
    except (ValueError, RecursionError, LookupError, TypeError) as error:
        raise _Failure(f"no chat completion: {text[:_SHOWN]!r}") from error
    if choice.get("finish_reason") == "length":
        raise _Failure("the reply was cut at judge.max_tokens")
    if not isinstance(content, str):
        raise _Failure(f"a reply without text: {text[:_SHOWN]!r}")
    try:
        value = read_json(content)
        problem = schema_error(schema, value)
    except JSONTextError as error:
        raise _Failure(f"a reply that is not JSON ({error}): {content[:_SHOWN]!r}") from error
    if problem is None and not isinstance(value, dict):
        problem = "no object"
    if problem is not None:
        raise _Failure(f"a reply that does not fit ({problem}): {content[:_SHOWN]!r}")
    found: dict[str, JSON] = value
    return found
