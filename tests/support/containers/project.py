"""Runs the Compose file with podman-compose, in a separate folder without the source code."""

import json
import secrets
import shutil
import ssl
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from devstack.harness.free_ports import free_port
from devstack.harness.polling import eventually
from tests.support.containers.engine import Engine, run
from tests.support.containers.images import OUR_IMAGE
from tests.support.deployment import files

# A host name for which the proxy creates the certificate itself.
HOST = "pressroom.localhost"
_COMPOSE_FILE = "docker-compose.yml"
# The folder with the files that the Compose file mounts.
_MOUNTED_FOLDER = "deploy/compose"
# The prefix of all IP addresses in the network `edge` of the Compose file.
_EDGE_PREFIX = "172.30.57."
_READY_SECONDS = 120.0
_PODMAN_COMPOSE = str(Path(sys.executable).parent / "podman-compose")


@dataclass
class Project:
    engine: Engine
    folder: Path

    def __post_init__(self) -> None:
        # Use a random name, because networks of an earlier run may still exist.
        self._name = f"pressroom-{secrets.token_hex(4)}"
        self.port = free_port()
        shutil.copytree(files.ROOT / _MOUNTED_FOLDER, self.folder / _MOUNTED_FOLDER)
        text = (files.ROOT / _COMPOSE_FILE).read_text()
        assert _EDGE_PREFIX in text
        (self.folder / _COMPOSE_FILE).write_text(text.replace(_EDGE_PREFIX, _free_network()))
        settings = {
            "PRESSROOM_IMAGE": OUR_IMAGE,
            "PRESSROOM_PUBLIC_URL": f"https://{HOST}",
            "HTTPS_PORT": str(self.port),
            "HTTP_PORT": str(free_port()),
            "API_PORT": str(free_port()),
            "FLOWER_PORT": str(free_port()),
        }
        lines = [
            line
            for line in files.ENV_EXAMPLE.read_text().splitlines()
            if line.partition("=")[0] not in settings
        ]
        lines += [f"{name}={value}" for name, value in settings.items()]
        (self.folder / ".env").write_text("\n".join([*lines, ""]))
        run(["sh", str(self.folder / "deploy" / "compose" / "secrets.sh")])

    def compose(self, *words: str, timeout: float = 200) -> None:
        run(
            [_PODMAN_COMPOSE, "--project-name", self._name, "--in-pod", "false", *words],
            timeout=timeout,
            environment=self.engine.environment,
            directory=self.folder,
        )

    def up(self, *words: str, services: tuple[str, ...] = ()) -> None:
        """Start each service as soon as the services that it depends on are ready.

        Docker Compose itself waits for the services that a service depends on. podman-compose can't
        wait if the installed version of Podman can't wait until a container is healthy.
        """
        for service in services or _list_services_in_order():
            for dependency, condition in files.services()[service].get("depends_on", {}).items():
                self._await(dependency, condition["condition"])
            self.compose("up", "--detach", "--no-build", "--no-deps", *words, service)

    def await_ready(self, service: str) -> None:
        self._await(service, "service_healthy")

    def _await(self, service: str, condition: str) -> None:
        if condition == "service_completed_successfully":
            code = self.engine.podman("wait", *self.containers(service)).split()
            assert set(code) == {"0"}, f"{service} ended with {code}:\n{self.log(service)}"
            return
        try:
            eventually(lambda: self._is_healthy(service), within=_READY_SECONDS, what=service)
        except AssertionError:
            raise AssertionError(f"{service} is not healthy:\n{self.log(service)}") from None

    def _is_healthy(self, service: str) -> bool:
        containers = self.containers(service)
        return bool(containers) and all(
            self.engine.succeeds("healthcheck", "run", each) for each in containers
        )

    def containers(self, service: str) -> list[str]:
        label = f"label=com.docker.compose.service={service}"
        words = ("--all", "--filter", label, "--format", "{{.Names}}")
        return self.engine.podman("ps", *words).split()

    def log(self, service: str) -> str:
        return "\n".join(map(self.engine.log, self.containers(service)))

    def inside(self, service: str, *words: str, timeout: float = 60) -> str:
        return self.engine.podman("exec", self.containers(service)[0], *words, timeout=timeout)

    def pressroom(self, *words: str) -> Any:
        return json.loads(self.inside("api", "pressroom", *words, "--json"))

    def client(self, key: str | None = None) -> httpx2.Client:
        """Return an HTTPS client that trusts only the certificate authority of the proxy."""
        authority = self.folder / "authority.crt"
        path = "/data/caddy/pki/authorities/local/root.crt"
        [proxy] = self.containers("proxy")
        self.engine.podman("cp", f"{proxy}:{path}", str(authority))
        headers = {"Host": HOST} | ({"Authorization": f"Bearer {key}"} if key else {})

        def name_server(request: httpx2.Request) -> None:
            request.extensions["sni_hostname"] = HOST

        return httpx2.Client(
            base_url=f"https://127.0.0.1:{self.port}",
            verify=ssl.create_default_context(cafile=str(authority)),
            headers=headers,
            event_hooks={"request": [name_server]},
            timeout=90,
            trust_env=False,
        )


def _free_network() -> str:
    """Return the prefix of the IP addresses of a network that this machine doesn't use yet.

    Another running stack, or a killed run, may occupy the network that the Compose file defines.
    """
    interfaces = json.loads(run(["ip", "-json", "-4", "address"]))
    addresses = [each["local"] for interface in interfaces for each in interface["addr_info"]]
    prefixes = [_EDGE_PREFIX] + [f"172.30.{number}." for number in range(58, 256)]
    return next(each for each in prefixes if not any(ip.startswith(each) for ip in addresses))


def _list_services_in_order() -> Iterator[str]:
    """Yield each service after the services that it depends on."""
    remaining = dict(files.services())
    while remaining:
        for name, service in remaining.items():
            if not set(service.get("depends_on", {})) & set(remaining):
                yield name
                del remaining[name]
                break
