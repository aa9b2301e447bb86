"""What plugins may ask for: services by name, and a sandbox with a package in it."""

from __future__ import annotations

import asyncio

import pytest

from agentrl.api import Call, ConfigError, PluginError
from agentrl.config import SandboxConfig
from agentrl.loops.wiring import close_services, services_for, start_services


def test_a_sandbox_may_be_asked_for_with_a_package() -> None:
    async def scenario() -> object:
        needs = frozenset({"sandbox[tabulate]", "workers"})
        services = start_services(needs, SandboxConfig(workers=1), "mine")
        try:
            assert set(services.available) == {"sandbox", "workers"}
            assert set(services_for(frozenset({"sandbox[tabulate]"}), services).available) == {"sandbox"}
            program = "import tabulate\ndef f(): return tabulate.tabulate([[1]], tablefmt='plain')"
            done = await services.sandbox.run_calls(program, [Call(function="f")])
            return done.results[0].value
        finally:
            await close_services(services)

    assert asyncio.run(scenario()) == "1"


@pytest.mark.parametrize(
    ("need", "error", "words"),
    [
        ("sandbox[no-such-package]", ConfigError, "'no-such-package', which is not installed"),
        ("workers[numpy]", PluginError, r"mine needs the service 'workers\[numpy\]'"),
        ("sandbox[]", PluginError, r"mine needs the service 'sandbox\[\]'"),
    ],
)
def test_what_is_not_there_is_refused(need: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        start_services(frozenset({need}), SandboxConfig(), "mine")
