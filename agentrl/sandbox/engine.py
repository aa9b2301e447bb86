"""The Docker backend: the command that puts the runner into a container, and what it leaves on the engine."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import platform
import secrets
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentrl.api import SandboxUnavailable
from agentrl.sandbox import cgroup
from agentrl.sandbox.image import own_image
from agentrl.sandbox.inside import seccomp
from agentrl.sandbox.interpreter import ENVIRONMENT, Visible, runner_words, visible

LABEL = "agentrl.sandbox"
LIFETIME = 24 * 3600  # seconds after which a container ends whatever happens; the pool then starts another
_PASSED_ON = ("DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH", "DOCKER_CONFIG", "HOME", "PATH", "SSH_AUTH_SOCK")
_USER = "64000:64000"
_FIRST_MEMORY_MB = 512
_SMALL = "size=64k,mode=755"
_SCRATCH = "size=16m,mode=1777"  # only packages that are loaded before the first program see it
_COVERS = (("w", "/w"), ("tmp", "/tmp"), ("shm", "/dev/shm"), ("none", "/dev/mqueue"), ("none", "/sys"))
_NOT_PERMITTED, _NOT_IMPLEMENTED = 1, 38


@dataclass(frozen=True, slots=True, kw_only=True)
class DockerSettings:
    """Which engine, image and runtime. None: `DOCKER_HOST`, an image of this interpreter made on the engine, runc.

    Example: `DockerSettings(image="agentrl-sandbox", runtime="runsc", host="ssh://judge@box")`.
    """

    image: str | None = None
    runtime: str | None = None
    host: str | None = None

    @property
    def tier(self) -> str:
        return f"docker+{self.runtime}" if self.runtime else "docker"


def connect(host: str | None) -> Any:
    """A client of the engine's API. Raises SandboxUnavailable with a sentence on how to get an engine."""
    import docker

    environment = dict(os.environ) | ({"DOCKER_HOST": host} if host else {})
    address = environment.get("DOCKER_HOST", "the default socket")
    try:
        options = docker.utils.kwargs_from_env(environment=environment)
        client = docker.APIClient(version="auto", timeout=60, **options)
        client.ping()
    except (docker.errors.DockerException, OSError) as error:
        raise SandboxUnavailable(
            f"no Docker engine answers at {address} ({error}): start one (`dockerd`, Docker Desktop) or set "
            "sandbox.docker.host or DOCKER_HOST"
        ) from error
    return client


def engine_version(settings: DockerSettings) -> str:
    """The engine's version with its runtime, such as `28.0.1, runc`; empty when no engine answers."""
    try:
        client = connect(settings.host)
    except SandboxUnavailable:
        return ""
    with contextlib.closing(client):
        runtime = settings.runtime or client.info().get("DefaultRuntime", "runc")
        return f"{client.version()['Version']}, {runtime}"


def prepare(settings: DockerSettings, packages: tuple[str, ...]) -> None:
    """Remove what killed runs left on the engine, and make sure that there is an image. Raises SandboxUnavailable."""
    import docker

    with contextlib.closing(connect(settings.host)) as client:
        try:
            sweep(client)
            _image_and_view(client, settings, packages)
        except docker.errors.DockerException as error:
            raise SandboxUnavailable(f"the Docker engine refused to prepare the sandbox: {error}") from error


def command(settings: DockerSettings, packages: tuple[str, ...]) -> list[str]:
    """The words of a process that stands for a container: it speaks the runner's frames and ends with it.

    Raises SandboxUnavailable.
    """
    with contextlib.closing(connect(settings.host)) as client:
        image, seen = _image_and_view(client, settings, packages)
    job = {
        "host": settings.host or os.environ.get("DOCKER_HOST"),
        "name": f"agentrl-{os.getpid()}-{secrets.token_hex(6)}",
        "image": image,
        "words": runner_words(seen, _RECEIVE, covers=_COVERS),
        "runtime": settings.runtime,
        "labels": {LABEL: _host(), "agentrl.owner": _owner(), "agentrl.until": str(int(time.time()) + LIFETIME)},
    }
    environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    start = f"import json, os, sys; sys.path[:0] = {[str(Path(__file__).parents[2])]!r}; "
    start += (
        f"os.environ.update({environment!r}); from agentrl.sandbox.attach import main; main(json.loads(sys.argv[1]))"
    )
    return [sys.executable, "-c", start, json.dumps(job)]


def container(client: Any, job: dict[str, Any]) -> dict[str, Any]:
    """The hardened container of a job of `command`, in the form of the engine's API."""
    host = client.create_host_config(
        network_mode="none",
        ipc_mode="private",
        read_only=True,
        cap_drop=["ALL"],
        security_opt=["no-new-privileges", f"seccomp={json.dumps(profile())}", "apparmor=unconfined"],
        pids_limit=cgroup.MOST_PROCESSES,
        nano_cpus=10**9,
        init=True,
        tmpfs={"/box": _SMALL, "/w": _SMALL, "/tmp": _SCRATCH},
        log_config={"Type": "none"},
        oom_score_adj=800,
        runtime=job["runtime"],
        **memory_limit(_FIRST_MEMORY_MB),
    )
    # A /proc with masked parts cannot be mounted afresh for each program; theirs is fresh and read-only.
    host |= {"MaskedPaths": [], "ReadonlyPaths": []}
    found: dict[str, Any] = client.create_container_config(
        image=job["image"],
        command=job["words"],
        user=_USER,
        hostname="box",
        working_dir="/",
        environment=ENVIRONMENT,
        labels=job["labels"],
        network_disabled=True,
        stdin_open=True,
        host_config=host,
    )
    return found | {"Entrypoint": []}


def memory_limit(memory_mb: int) -> dict[str, int]:
    """Arguments of the engine's API for the memory of all processes of a container, without swap."""
    limit = (memory_mb + cgroup.OWN_MB) << 20
    return {"mem_limit": limit, "memswap_limit": limit}


def profile() -> dict[str, Any]:
    """The seccomp profile of the container: the programs' deny list, less what the runner needs to nest namespaces."""
    calls = [{"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": _NOT_IMPLEMENTED}]
    denied = sorted(seccomp.DENIED.keys() - seccomp.RUNNER_NEEDS)
    calls += [{"names": denied, "action": "SCMP_ACT_ERRNO", "errnoRet": _NOT_PERMITTED}]
    return {"defaultAction": "SCMP_ACT_ALLOW", "syscalls": calls}


def sweep(client: Any) -> None:
    """Remove the containers whose owner is gone or whose time is over, started or not."""
    import docker

    for found in client.containers(all=True, filters={"label": LABEL}):
        labels = found["Labels"]
        orphan = labels[LABEL] == _host() and not _alive(labels.get("agentrl.owner", ""))
        if orphan or float(labels.get("agentrl.until", 0)) < time.time():
            with contextlib.suppress(docker.errors.NotFound):
                client.remove_container(found["Id"], force=True, v=True)


# Receives the runner's own modules as an archive on standard input, so that any image with Python will do, and any
# engine: nothing is mounted from this machine. The container's time is bounded before anything else.
_RECEIVE = f"""import os, signal, sys
signal.alarm({LIFETIME})
def take(size):
    data = b""
    while len(data) < size:
        part = os.read(0, size - len(data))
        if not part:
            raise SystemExit("the runner's code did not arrive")
        data += part
    return data
code = os.memfd_create("runner")
os.write(code, take(int.from_bytes(take(4), "little")))
sys.path.insert(0, "/proc/self/fd/%d" % code)
import agentrl.sandbox.inside.runner
os.close(code)
del code, take"""


def _image_and_view(client: Any, settings: DockerSettings, packages: tuple[str, ...]) -> tuple[str, Visible]:
    if settings.image is None:
        seen = visible(packages)
        return own_image(client, seen), seen
    import docker

    try:
        client.inspect_image(settings.image)
    except docker.errors.ImageNotFound:
        raise SandboxUnavailable(
            f"the image '{settings.image}' (sandbox.docker.image) is not on the Docker engine: build it with "
            f"`docker build -t {settings.image} {Path(__file__).with_name('recipe')}`"
        ) from None
    modules = tuple(name.replace("-", "_") for name in packages)
    return settings.image, Visible(python="python3", binds=(), hidden=(), packages_at="/packages", modules=modules)


@functools.cache
def _host() -> str:
    """Names the machine and the process table that an owner's process id belongs to."""
    words = [platform.node()]
    with contextlib.suppress(OSError):
        words.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        words.append(str(os.stat("/proc/self/ns/pid").st_ino))
    return "-".join(words)


def _owner() -> str:
    return f"{os.getpid()}-{_started(os.getpid())}"


def _alive(owner: str) -> bool:
    pid, _, started = owner.partition("-")
    if not pid.isdigit():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return _started(int(pid)) == started


def _started(pid: int) -> str:
    """When a process started, in clock ticks since boot, so that a process id used again is told apart."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""
