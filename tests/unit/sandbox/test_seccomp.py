"""The system call filter, executed by a small interpreter of its instructions, so that no kernel is needed."""

from __future__ import annotations

import struct

import pytest

from agentrl.sandbox.inside import seccomp

ALLOW, EPERM, ENOSYS, EAFNOSUPPORT, KILL = 0x7FFF0000, 0x50001, 0x50026, 0x50061, 0x80000000
MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}


Filters = tuple[bytes, bytes]


def decide(filters: Filters, architecture: int, number: int, *arguments: int) -> int:
    """What the runner's and the program's filter together answer for one call: the kernel takes the strictest."""
    answers = [run(code, architecture, number, *arguments) for code in filters]
    return next(answer for answer in (KILL, ENOSYS, EAFNOSUPPORT, EPERM, ALLOW) if answer in answers)


def run(code: bytes, architecture: int, number: int, *arguments: int) -> int:
    """What one filter answers."""
    padded = (*arguments, 0, 0, 0, 0, 0, 0)[:6]
    data = struct.pack("<IIQ6Q", number, architecture, 0, *padded)
    program = [struct.unpack_from("=HBBI", code, 8 * place) for place in range(len(code) // 8)]
    register, place = 0, 0
    while True:
        operation, if_true, if_false, value = program[place]
        place += 1
        if operation == 0x20:
            register = struct.unpack_from("<I", data, value)[0]
        elif operation == 0x06:
            return int(value)
        else:
            holds = {0x15: register == value, 0x35: register >= value, 0x45: bool(register & value)}[operation]
            place += if_true if holds else if_false


def filters() -> Filters:
    return seccomp.build_filter(for_runner=True), seccomp.build_filter(for_runner=False)


@pytest.fixture(params=sorted(MACHINES))
def machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[Filters, int, int]:
    index, architecture = MACHINES[request.param]
    monkeypatch.setattr(seccomp, "machine_index", lambda: index)
    return filters(), architecture, index


def test_every_denied_call_is_refused_and_all_others_are_allowed(machine: tuple[Filters, int, int]) -> None:
    code, architecture, index = machine
    denied = {numbers[index] for numbers in seccomp.DENIED.values()} - {None}
    special = {
        (302, 261)[index],
        (435, 435)[index],
        (56, 220)[index],
        (16, 29)[index],
        (41, 198)[index],
        (53, 199)[index],
    }
    assert not denied & special
    for number in range(1000):
        if number not in special:
            assert decide(code, architecture, number) == (EPERM if number in denied else ALLOW), number


def test_another_architecture_is_killed(machine: tuple[Filters, int, int]) -> None:
    code, architecture, _ = machine
    assert decide(code, 0x40000003, 11) == KILL
    assert decide(code, architecture ^ 1, 11) == KILL


def test_namespaces_sockets_and_terminals(machine: tuple[Filters, int, int]) -> None:
    code, architecture, index = machine
    clone, ioctl, socket, pair = ((56, 220)[index], (16, 29)[index], (41, 198)[index], (53, 199)[index])
    assert decide(code, architecture, 435) == ENOSYS
    assert decide(code, architecture, clone, 17) == ALLOW
    assert decide(code, architecture, clone, 0x3D0F00) == ALLOW  # the flags of a thread
    for flag in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
        assert decide(code, architecture, clone, flag | 17) == EPERM
    for family in range(50):
        wanted = ALLOW if family in (1, 2, 10) else EAFNOSUPPORT
        assert decide(code, architecture, socket, family) == decide(code, architecture, pair, family) == wanted
    assert decide(code, architecture, ioctl, 0, 0x5412) == decide(code, architecture, ioctl, 0, 0x541C) == EPERM
    # The kernel looks at the low half only, and so must the filter.
    assert decide(code, architecture, ioctl, 0, 0x5412 | 1 << 32) == EPERM
    assert decide(code, architecture, ioctl, 0, 0x5401) == ALLOW


def test_limits_of_other_processes_are_out_of_reach(machine: tuple[Filters, int, int]) -> None:
    code, architecture, index = machine
    assert decide(code, architecture, (302, 261)[index], 0, 7) == ALLOW
    assert decide(code, architecture, (302, 261)[index], 1, 7) == EPERM


def test_the_runner_may_still_set_up_programs(machine: tuple[Filters, int, int]) -> None:
    (code, _), architecture, index = machine
    for name in seccomp.RUNNER_NEEDS:
        assert run(code, architecture, seccomp.DENIED[name][index] or 0) == ALLOW
    assert run(code, architecture, (56, 220)[index], 0x7E020011) == ALLOW


def test_the_x32_calls_are_refused() -> None:
    if seccomp.machine_index() == 0:
        assert decide(filters(), 0xC000003E, 0x40000000 | 101) == ENOSYS
