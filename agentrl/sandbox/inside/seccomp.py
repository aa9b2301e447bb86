"""A seccomp deny list, assembled by hand: no libseccomp inside.

The filter allows what it does not name. It refuses (EPERM) what an honest program never calls and an escape needs:
tracing, kernel keyrings, bpf, io_uring, mounts, new namespaces, clocks, modules; memory that no process or file
system accounts for; sockets other than UNIX and IP; and terminal injection. `clone3` is ENOSYS, because its flags lie
in memory that a filter cannot read; libc then falls back to `clone`, whose flags are checked.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable

# Names and numbers of the kernel's tables: (x86_64, aarch64), None where the call does not exist.
DENIED: dict[str, tuple[int | None, int | None]] = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "pidfd_getfd": (438, 438), "process_madvise": (440, 440),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431),
    "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442), "open_tree_attr": (467, 467),
    "unshare": (272, 97), "setns": (308, 268),
    "swapon": (167, 224), "swapoff": (168, 225), "reboot": (169, 142), "acct": (163, 89), "syslog": (103, 116),
    "quotactl": (179, 60), "quotactl_fd": (443, 443), "vhangup": (153, 58),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294),
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "clock_adjtime": (305, 266), "adjtimex": (159, 171),
    "sethostname": (170, 161), "setdomainname": (171, 162), "personality": (135, 92),
    "iopl": (172, None), "ioperm": (173, None), "modify_ldt": (154, None), "uselib": (134, None),
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265), "lookup_dcookie": (212, 18),
    "fanotify_init": (300, 262), "fanotify_mark": (301, 263),
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194), "msgget": (68, 186),
    "semget": (64, 190),
    "mbind": (237, 235), "set_mempolicy": (238, 237), "migrate_pages": (256, 238), "move_pages": (279, 239),
}  # fmt: skip
_CLONE3 = (435, 435)
_CLONE, _IOCTL, _SOCKET, _SOCKETPAIR, _PRLIMIT = (56, 220), (16, 29), (41, 198), (53, 199), (302, 261)

RUNNER_NEEDS = frozenset({"mount", "memfd_create"})
"""Calls of the deny list that the runner makes to set up each program: its file systems and its input."""

_AUDIT_ARCH = (0xC000003E, 0xC00000B7)
_NEW_NAMESPACES = 0x7E020000  # CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
_SOCKET_FAMILIES = (1, 2, 10)  # AF_UNIX, AF_INET, AF_INET6
_TERMINAL_INJECTION = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX

_KILL, _ALLOW = 0x80000000, 0x7FFF0000
_EPERM, _ENOSYS, _EAFNOSUPPORT = 0x50001, 0x50026, 0x50061
_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ARG_LOW = (16, 24)  # offset in seccomp_data of the low half of arguments 0 and 1 (little-endian machines)

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 38, 22, 2


def machine_index() -> int:
    """0 on x86_64, 1 on aarch64. Raises OSError elsewhere: without its numbers there is no filter."""
    machine = os.uname().machine
    if machine not in ("x86_64", "aarch64"):
        raise OSError(f"no system call table for the machine '{machine}'")
    return 0 if machine == "x86_64" else 1


def build_filter(*, for_runner: bool) -> bytes:
    """A classic BPF program for this machine, as the bytes of an array of `struct sock_filter`.

    The runner installs one for itself, once, which all programs inherit; each program adds a small second one, that
    refuses what the runner had to keep. A long filter would cost every verdict its translation by the kernel.
    """
    machine = machine_index()
    code: list[tuple[int, int, int, int]] = []

    def emit(operation: int, value: int, if_true: int = 0, if_false: int = 0) -> None:
        code.append((operation, if_true, if_false, value))

    def refuse(number: int, answer: int) -> None:
        emit(_JUMP_EQUAL, number, 0, 1)
        emit(_RETURN, answer)

    emit(_LOAD, 4)
    emit(_JUMP_EQUAL, _AUDIT_ARCH[machine], 1, 0)
    emit(_RETURN, _KILL)
    emit(_LOAD, 0)
    for name, numbers in DENIED.items():
        number = numbers[machine]
        if number is not None and (name in RUNNER_NEEDS) != for_runner:
            refuse(number, _EPERM)
    if for_runner:
        _refuse_for_all(machine, emit, refuse)
    else:
        emit(_JUMP_EQUAL, _CLONE[machine], 0, 4)
        emit(_LOAD, _ARG_LOW[0])
        emit(_JUMP_ANY_BIT, _NEW_NAMESPACES, 0, 1)
        emit(_RETURN, _EPERM)
        emit(_RETURN, _ALLOW)
        # The limits of its own process only: the tests run as the same user.
        emit(_JUMP_EQUAL, _PRLIMIT[machine], 0, 3)
        emit(_LOAD, _ARG_LOW[0])
        emit(_JUMP_EQUAL, 0, 1, 0)
        emit(_RETURN, _EPERM)
    emit(_RETURN, _ALLOW)
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


def _refuse_for_all(machine: int, emit: Callable[..., None], refuse: Callable[[int, int], None]) -> None:
    if machine == 0:
        # The x32 calls carry this bit and would pass by every number.
        emit(_JUMP_AT_LEAST, 0x40000000, 0, 1)
        emit(_RETURN, _ENOSYS)
    refuse(_CLONE3[machine], _ENOSYS)
    for call in (_SOCKET, _SOCKETPAIR):
        emit(_JUMP_EQUAL, call[machine], 0, 3 + len(_SOCKET_FAMILIES))
        emit(_LOAD, _ARG_LOW[0])
        for place, family in enumerate(_SOCKET_FAMILIES):
            emit(_JUMP_EQUAL, family, len(_SOCKET_FAMILIES) - place, 0)
        emit(_RETURN, _EAFNOSUPPORT)
        emit(_RETURN, _ALLOW)
    emit(_JUMP_EQUAL, _IOCTL[machine], 0, 2 + 2 * len(_TERMINAL_INJECTION))
    emit(_LOAD, _ARG_LOW[1])
    for request in _TERMINAL_INJECTION:
        refuse(request, _EPERM)
    emit(_RETURN, _ALLOW)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_void_p))


class Filter:
    """A filter held ready in memory, so that installing it costs one system call."""

    def __init__(self, *, for_runner: bool) -> None:
        code = build_filter(for_runner=for_runner)
        self._code = ctypes.create_string_buffer(code, len(code))
        self._program = _Program(len(code) // 8, ctypes.addressof(self._code))

    def install(self, libc: ctypes.PyDLL) -> None:
        """Set no_new_privs and the filter for this process and all it starts. Raises OSError."""
        for arguments in (
            (_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
            (_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(self._program), 0, 0),
        ):
            if libc.prctl(*arguments) != 0:
                raise OSError(ctypes.get_errno(), "prctl")
