import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from core.lanes import Lane
from core.settings import Settings
from core.settings.given_settings import is_secret, variable_of
from core.settings.process_settings import settings_of
from tests.command_line import option, options, require_accepted
from tests.deployment import files
from workers.queues.serving import serving

pytestmark = pytest.mark.check

ONCE = {"migrate", "bucket"}


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
    given = set(files.ours()[name]["environment"])
    assert given == {variable_of(each) for each in needed - left_out}


def test_every_setting_is_one_that_some_process_needs() -> None:
    needed = settings_of("serve") | settings_of("worker", list(Lane)) | settings_of("flower")
    assert needed == set(Settings.model_fields)


def test_a_process_that_decodes_files_holds_no_key_to_money_mail_or_figures() -> None:
    secrets = {name for name, field in Settings.model_fields.items() if is_secret(field)}
    held = secrets & settings_of("worker", [Lane.MEDIA, Lane.EXPORT, Lane.BULK])
    stores = {"database_url", "redis_url", "s3_secret_key"}
    assert held == stores | {"secret_keys", "encryption_keys"}


def test_what_has_no_default_stops_compose_with_a_message() -> None:
    for name in files.required_names() | {"PRESSROOM_FLOWER_PASSWORD"}:
        value = next(
            each["environment"][name]
            for each in files.ours().values()
            if name in each["environment"]
        )
        from_env = files.VARIABLE.search(value)
        assert from_env is None or from_env[2] == ":?", f"{name} may be empty: {value}"


def test_no_secret_is_written_in_the_compose_file() -> None:
    for service in files.services().values():
        for name, value in service.get("environment", {}).items():
            if name.endswith(("PASSWORD", "KEY", "KEYS", "TOKEN", "AUTH")):
                assert files.VARIABLE.fullmatch(value), f"{name} is written out"


def test_every_variable_is_in_the_example_environment() -> None:
    used = {match[1] for match in files.VARIABLE.finditer(json.dumps(files.compose()))}
    assert used <= set(files.env_example())


def test_each_url_names_a_service_and_the_port_that_it_listens_on() -> None:
    environment = files.ours()["api"]["environment"]
    for name, host, port in (
        ("PRESSROOM_DATABASE_URL", "postgres", 5432),
        ("PRESSROOM_REDIS_URL", "redis", 6379),
        ("PRESSROOM_S3_ENDPOINT", "minio", 9000),
    ):
        assert host in files.services()
        assert f"{host}:{port}" in environment[name]
    assert not any("--port" in each.get("command", []) for each in _theirs().values())


def test_the_published_ports_are_those_our_processes_listen_on_and_open_to_this_machine() -> None:
    published = {name: each["ports"] for name, each in files.services().items() if "ports" in each}
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
        assert any(alive_file.startswith(f"{path}/") for path in worker["tmpfs"])


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
            stores = dict.fromkeys(_theirs(), healthy)
            assert waits == stores | dict.fromkeys(ONCE, done)


def test_everything_that_others_wait_for_has_a_health_check() -> None:
    for name in _theirs():
        assert "test" in files.services()[name]["healthcheck"]


def test_what_runs_on_is_restarted_and_what_runs_once_is_not() -> None:
    for name, each in files.services().items():
        assert each["restart"] == ("no" if name in ONCE else "unless-stopped")


def test_our_containers_have_no_rights_and_write_to_nothing_but_tmp() -> None:
    for each in files.ours().values():
        assert each["read_only"] is True
        assert each["tmpfs"] == ["/tmp"]
        assert each["cap_drop"] == ["ALL"]
        assert "no-new-privileges:true" in each["security_opt"]
        assert "volumes" not in each


def test_data_is_kept_in_named_volumes() -> None:
    mounted = {
        volume.partition(":")[0] for each in _theirs().values() for volume in each["volumes"]
    }
    assert mounted == set(files.compose()["volumes"]) == {"postgres", "minio", "redis"}


def test_redis_keeps_its_queues_and_evicts_only_what_expires() -> None:
    command = files.services()["redis"]["command"]
    assert option(command, "--maxmemory-policy") == "volatile-lru"
    assert option(command, "--appendonly") == "yes"


def test_every_image_is_pinned_by_a_tag() -> None:
    for name, each in _theirs().items():
        tag = each["image"].partition(":")[2]
        assert tag, f"{name} has no tag"
        assert tag != "latest"


def _theirs() -> dict[str, dict[str, Any]]:
    return {name: each for name, each in files.services().items() if "build" not in each}
