"""Tests that processes run in containers with the restrictions of the Kubernetes manifests."""

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from devstack.harness.embedded_services import Services
from devstack.harness.free_ports import free_port
from devstack.harness.opening import open_stack
from devstack.harness.polling import eventually
from devstack.harness.stack import Stack
from devstack.supervisor.embedded.valkey import DATABASES
from devstack.supervisor.programs import is_responding
from tests.support.deployment import files, pods
from tests.support.images.pictures import photo
from tests.support.stack.programs import TEST_PROGRAMS

# The default seccomp profile of container runtimes, in the format that Docker and Podman share.
DEFAULT_PROFILE = Path("/usr/share/containers/seccomp.json")
_HOST_FOLDERS = ("/usr", "/etc", "/bin", "/sbin", "/lib", "/lib64")


def find_missing_prerequisite() -> str:
    """Return the reason why containers can't run on this machine, or an empty text."""
    if os.geteuid() != 0:
        return "containers are made by root"
    if shutil.which("runc") is None:
        return "there is no runc"
    return "" if DEFAULT_PROFILE.exists() else f"there is no {DEFAULT_PROFILE}"


@dataclass
class Container:
    """A running container, whose bundle and log are in `folder`."""

    process: pods.Process
    folder: Path

    def __post_init__(self) -> None:
        self.log = self.folder / "log"
        self._runc = ("runc", "--root", str(self.folder / "state"))
        with self.log.open("w") as log:
            words = [*self._runc, "run", "--bundle", str(self.folder), self.name]
            self.main = subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT)

    @property
    def name(self) -> str:
        return str(self.process).replace("/", "-")

    def succeeds(self, words: Sequence[str]) -> bool:
        """Return whether a command succeeds in the container."""
        command = [*self._runc, "exec", self.name, *words]
        return subprocess.run(command, check=False, capture_output=True).returncode == 0

    def passes_probe(self, probe: str) -> bool:
        return self.succeeds(self.process.container[probe]["exec"]["command"])

    def terminate(self) -> None:
        words = [*self._runc, "kill", self.name, "TERM"]
        subprocess.run(words, check=False, capture_output=True)


def start_container(
    process: pods.Process, folder: Path, settings: dict[str, str], port: int
) -> Container:
    """Start a container with the settings that its process needs.

    ``port`` replaces the port in the manifest, which another program of this machine may use.
    """
    (folder / "rootfs").mkdir(parents=True)
    environment = {
        "PATH": os.defpath,
        "PYTHONPATH": str(files.ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
        **process.values(),
        **{name: value for name, value in settings.items() if name in process.needs()},
    }
    pairs = pairwise(process.words)
    arguments = [str(port) if previous == "--port" else word for previous, word in pairs]
    words = [sys.executable, "-m", "cli.main", *arguments]
    (folder / "config.json").write_text(json.dumps(_bundle(process, folder, words, environment)))
    return Container(process, folder)


def _bundle(
    process: pods.Process, folder: Path, words: list[str], environment: dict[str, str]
) -> dict[str, Any]:
    pod = pods.pod_of(pods.workloads()[process.workload])["securityContext"]
    security = process.container["securityContext"]
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert pod["seccompProfile"] == {"type": "RuntimeDefault"}
    return {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": pod["runAsUser"], "gid": pod["runAsGroup"]},
            "cwd": "/",
            "args": words,
            "env": [f"{name}={value}" for name, value in environment.items()],
            "capabilities": {},
            "noNewPrivileges": not security["allowPrivilegeEscalation"],
        },
        "root": {"path": "rootfs", "readonly": security["readOnlyRootFilesystem"]},
        "mounts": [*_mounts(process, folder / "rootfs")],
        "linux": {
            "namespaces": [{"type": kind} for kind in ("pid", "ipc", "uts", "mount")],
            "seccomp": _seccomp(),
        },
    }


def _mounts(process: pods.Process, root: Path) -> Iterator[dict[str, Any]]:
    yield {"destination": "/proc", "type": "proc", "source": "proc"}
    yield {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["mode=755"]}
    folders = [each["mountPath"] for each in process.container["volumeMounts"]]
    for folder in ("/dev/shm", *folders):
        yield {
            "destination": folder,
            "type": "tmpfs",
            "source": "tmpfs",
            "options": ["mode=1777"],
        }
    for path in (*_HOST_FOLDERS, sys.base_prefix, sys.prefix, str(files.ROOT)):
        if Path(path).is_symlink():
            (root / path.lstrip("/")).symlink_to(Path(path).readlink())
        elif Path(path).exists():
            bind = {"destination": path, "type": "bind", "source": path}
            yield {**bind, "options": ["rbind", "ro"]}


def _seccomp() -> dict[str, Any]:
    """Return the default seccomp profile of a container without capabilities on x86-64."""
    profile = json.loads(DEFAULT_PROFILE.read_text())
    rules = [
        {key: each[key] for key in ("names", "action", "errnoRet") if each.get(key) is not None}
        | {"args": [_without_comments(arg) for arg in each.get("args") or []]}
        for each in profile["syscalls"]
        if _is_applicable(each.get("includes") or {}, each.get("excludes") or {})
    ]
    architectures = ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"]
    default = {key: profile[key] for key in ("defaultAction", "defaultErrnoRet") if key in profile}
    return {**default, "architectures": architectures, "syscalls": rules}


def _is_applicable(includes: dict[str, Any], excludes: dict[str, Any]) -> bool:
    is_own_architecture = "amd64" in includes.get("arches", ["amd64"])
    return (
        is_own_architecture and "caps" not in includes and "amd64" not in excludes.get("arches", [])
    )


def _without_comments(argument: dict[str, Any]) -> dict[str, Any]:
    return {key: argument[key] for key in ("index", "value", "valueTwo", "op") if key in argument}


pytestmark = [
    pytest.mark.slow,
    pytest.mark.tier("machines"),
    pytest.mark.skipif(bool(find_missing_prerequisite()), reason=find_missing_prerequisite()),
    pytest.mark.skipif(
        platform.machine() != "x86_64", reason="the tests read the profile for x86-64"
    ),
]

StartContainer = Callable[[str], Container]


@pytest.fixture
def unmigrated_stack(services: Services, home: Path) -> Iterator[Stack]:
    """A test stack without running processes, whose database has no tables yet."""
    port = free_port()
    with open_stack(
        services, home, "pods", DATABASES - 2, port, migrated=False, programs=TEST_PROGRAMS
    ) as stack:
        yield stack


@pytest.fixture
def start_pod_container(unmigrated_stack: Stack, tmp_path: Path) -> Iterator[StartContainer]:
    settings = {
        **unmigrated_stack.environment,
        "PRESSROOM_MIGRATION_DATABASE_URL": unmigrated_stack.owner_url,
        "PRESSROOM_ALIVE_FILE": "/tmp/alive",
    }
    processes = {str(each): each for each in pods.processes()}
    with ExitStack() as cleanup:

        def start(name: str) -> Container:
            folder = tmp_path / name.replace("/", "-")
            container = start_container(
                processes[name], folder, settings, unmigrated_stack.api_port
            )
            cleanup.callback(container.main.wait, 60)
            cleanup.callback(container.terminate)
            return container

        yield start


def test_kubernetes_containers_process_an_upload_and_a_composer_call(
    unmigrated_stack: Stack, start_pod_container: StartContainer
) -> None:
    init_container = start_pod_container("pressroom-api/wait-until-migrated")
    event = "migrate.waits_for_the_database"
    eventually(lambda: event in init_container.log.read_text(), what="the API's init container")
    for job in (
        start_pod_container("pressroom-migrate/migrate"),
        start_pod_container("pressroom-bucket/bucket"),
    ):
        assert job.main.wait(60) == 0, job.log.read_text()
    assert init_container.main.wait(30) == 0

    api = start_pod_container("pressroom-api/api")
    workers = [
        start_pod_container(f"pressroom-worker-{kind}/worker") for kind in ("waiting", "media")
    ]
    path = api.process.container["readinessProbe"]["httpGet"]["path"]
    eventually(lambda: is_responding(unmigrated_stack.api_port, path), within=60, what="the API")
    for worker in workers:
        assert worker.succeeds(
            worker.process.container["lifecycle"]["postStart"]["exec"]["command"]
        )
        is_ready = partial(worker.passes_probe, "readinessProbe")
        eventually(is_ready, within=60, what=f"the probe of {worker.name}")
        assert worker.passes_probe("livenessProbe")

    wait = {"Prefer": "wait=30"}
    with unmigrated_stack.client(unmigrated_stack.create_owner().key) as client:
        upload = client.post("/attachments", files={"file": ("a.jpg", photo())}, headers=wait)
        post = {"title": "A garden in May", "content": "The tulips are out."}
        metadata = client.post("/composer/metadata", json=post, headers=wait)
    assert upload.json()["data"]["mime_type"] == "image/webp"
    assert metadata.status_code == 200
    # In addition to the pod's restrictions, the image converter installs its own seccomp filter.
    assert "converter.unfiltered" not in workers[1].log.read_text()
    for container in (api, *workers):
        container.terminate()
        assert container.main.wait(40) == 0, container.log.read_text()
