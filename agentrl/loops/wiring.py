"""Services and plugins put together for one run, and taken down again whatever happens."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from agentrl.api import ConfigError, DataError, Env, PluginError, Sandbox, Services, Task, nearest
from agentrl.config import JudgeConfig, SandboxConfig
from agentrl.endpoint import EndpointSettings, JudgeEndpoint
from agentrl.loops.resolve import Resolved
from agentrl.rollouts.scoring import Scorer
from agentrl.sandbox import DockerSettings, WorkerProcesses, open_sandbox, open_workers

OFFERED = frozenset({"sandbox", "workers", "judge"})
"""Names that a plugin may put into `needs`; `sandbox[NAME]` is a sandbox in which the package NAME can be imported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wired:
    """A run's environment and scorer, ready to use. `catalogue` is the instance that is asked for tasks."""

    resolved: Resolved
    services: Services
    catalogue: Env
    scorer: Scorer

    def make_env(self) -> Env:
        """A fresh environment for one rollout."""
        return _build(self.resolved, self.services)

    def tasks(self, split: str, limit: int | None = None) -> list[Task]:
        """The first `limit` tasks of a split; an unknown or empty split is an error that names the others."""
        name, splits = self.resolved.config.env.name, self.resolved.env.splits
        if split not in splits:
            raise DataError(
                f"environment '{name}' has no split '{split}'{nearest(split, splits)} ({', '.join(splits)})"
            )
        tasks = list(self.catalogue.tasks(split))[:limit]
        if not tasks:
            raise DataError(f"environment '{name}': the split '{split}' has no tasks")
        for task in tasks:
            for verifier in self.scorer.verifiers.values():
                try:
                    verifier.check_task(task)
                except DataError as error:
                    raise DataError(f"task '{task.id}' of '{split}': {error}") from error
        return tasks


def _build(resolved: Resolved, services: Services) -> Env:
    options = resolved.env_options
    return resolved.env(options, services_for(resolved.env.needs_for(options), services))


def services_for(needs: frozenset[str], services: Services) -> Services:
    """Only what a plugin asked for."""
    return Services(available={name: services.available[name] for name in map(_service, needs)})


def _service(need: str) -> str:
    return "sandbox" if _SANDBOX_WITH.fullmatch(need) else need


_SANDBOX_WITH = re.compile(r"sandbox\[(?P<package>[\w.-]+)\]")


def start_services(
    needs: frozenset[str], config: SandboxConfig, owner: str, judge: JudgeConfig | None = None
) -> Services:
    """Start what is needed; a missing backend, endpoint or key, or an unknown service, is an error that says so."""
    wanted = {match["package"] for match in map(_SANDBOX_WITH.fullmatch, needs) if match}
    needs = frozenset(map(_service, needs))
    unknown = sorted(needs - OFFERED)
    if unknown:
        raise PluginError(f"{owner} needs the service '{unknown[0]}'; this version offers {', '.join(sorted(OFFERED))}")
    available: dict[str, object] = {}
    if "judge" in needs:  # first: it may be refused, and starts no process
        available["judge"] = JudgeEndpoint(endpoint_settings(judge or JudgeConfig(), owner))
    if "sandbox" in needs:
        available["sandbox"] = open_sandbox(
            backend=config.backend,
            workers=config.workers,
            packages=tuple(dict.fromkeys([*config.packages, *sorted(wanted)])),
            docker=DockerSettings(**config.docker.model_dump()),
        )
    if "workers" in needs:
        available["workers"] = open_workers(workers=config.workers)
    return Services(available=available)


def endpoint_settings(config: JudgeConfig, owner: str) -> EndpointSettings:
    """How the judge is asked. Raises ConfigError when its address, model or key is missing."""
    if config.endpoint is None:
        raise ConfigError(
            f"{owner} needs the service 'judge': set judge.endpoint to an OpenAI-compatible address, such as "
            "http://localhost:8000/v1, and judge.model to the name of the model there"
        )
    if config.model is None:
        raise ConfigError(f"judge.model is missing: name the model that judges at {config.endpoint}")
    key = None
    if config.api_key_env is not None:
        key = os.environ.get(config.api_key_env, "").strip()
        if not key or not (key.isascii() and key.isprintable()):
            raise ConfigError(
                f"judge.api_key_env = '{config.api_key_env}': this environment variable holds no key; set it, or the "
                "option to null when the endpoint asks for none"
            )
    given = config.model_dump(exclude={"endpoint", "model", "api_key_env"})
    return EndpointSettings(endpoint=config.endpoint, model=config.model, api_key=key, **given)


async def close_services(services: Services) -> None:
    """Close every service that was started."""
    sandbox: Sandbox | None = services.available.get("sandbox")  # type: ignore[assignment]
    if sandbox is not None:
        await sandbox.close()
    workers: WorkerProcesses | None = services.available.get("workers")  # type: ignore[assignment]
    if workers is not None:
        await workers.close()
    judge: JudgeEndpoint | None = services.available.get("judge")  # type: ignore[assignment]
    if judge is not None:
        await judge.close()


@asynccontextmanager
async def wire(resolved: Resolved) -> AsyncIterator[Wired]:
    """Start the services that the plugins need, build the plugins, and close everything in the end."""
    needs = resolved.env.needs_for(resolved.env_options).union(*(plan.plugin.needs for plan in resolved.verifiers))
    asks = [part for plan in resolved.verifiers if "judge" in plan.plugin.needs for part in plan.parts]
    owner = f"reward.parts.{asks[0]}" if asks else resolved.config.env.name
    services = start_services(needs, resolved.config.sandbox, owner, resolved.config.judge)
    try:
        verifiers = {}
        for plan in resolved.verifiers:
            verifier = plan.plugin(plan.options, services_for(plan.plugin.needs, services))
            verifiers.update(dict.fromkeys(plan.parts, verifier))
        catalogue = _build(resolved, services)
        scorer = Scorer(resolved.config.reward, verifiers)
        yield Wired(resolved=resolved, services=services, catalogue=catalogue, scorer=scorer)
    finally:
        await close_services(services)
