"""Services and plugins put together for one run, and taken down again whatever happens."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from agentrl.api import DataError, Env, PluginError, Sandbox, Services, Task, nearest
from agentrl.config import SandboxConfig
from agentrl.loops.resolve import Resolved
from agentrl.rollouts.scoring import Scorer
from agentrl.sandbox import DockerSettings, WorkerProcesses, open_sandbox, open_workers

OFFERED = frozenset({"sandbox", "workers"})
"""Names that a plugin may put into `needs`."""

VERIFIER_TIMEOUT = 300.0
"""Seconds after which a verdict is given up as unjudged; verifiers have tighter limits of their own."""


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
    return Services(available={name: services.available[name] for name in needs})


def start_services(needs: frozenset[str], config: SandboxConfig, owner: str) -> Services:
    """Start what is needed; a missing backend or an unknown service is an error that says what to do."""
    unknown = sorted(needs - OFFERED)
    if unknown:
        raise PluginError(f"{owner} needs the service '{unknown[0]}'; this version offers {', '.join(sorted(OFFERED))}")
    available: dict[str, object] = {}
    if "sandbox" in needs:
        available["sandbox"] = open_sandbox(
            backend=config.backend,
            workers=config.workers,
            packages=tuple(config.packages),
            docker=DockerSettings(**config.docker.model_dump()),
        )
    if "workers" in needs:
        available["workers"] = open_workers(workers=config.workers)
    return Services(available=available)


async def close_services(services: Services) -> None:
    """Close every service that was started."""
    sandbox: Sandbox | None = services.available.get("sandbox")  # type: ignore[assignment]
    if sandbox is not None:
        await sandbox.close()
    workers: WorkerProcesses | None = services.available.get("workers")  # type: ignore[assignment]
    if workers is not None:
        await workers.close()


@asynccontextmanager
async def wire(resolved: Resolved) -> AsyncIterator[Wired]:
    """Start the services that the plugins need, build the plugins, and close everything in the end."""
    needs = resolved.env.needs_for(resolved.env_options).union(*(plan.plugin.needs for plan in resolved.verifiers))
    services = start_services(needs, resolved.config.sandbox, resolved.config.env.name)
    try:
        verifiers = {}
        for plan in resolved.verifiers:
            verifier = plan.plugin(plan.options, services_for(plan.plugin.needs, services))
            verifiers.update(dict.fromkeys(plan.parts, verifier))
        catalogue = _build(resolved, services)
        scorer = Scorer(resolved.config.reward, verifiers, VERIFIER_TIMEOUT)
        yield Wired(resolved=resolved, services=services, catalogue=catalogue, scorer=scorer)
    finally:
        await close_services(services)
