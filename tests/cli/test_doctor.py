"""Tests of the command ``doctor``, which checks the settings and services of an installation."""

import json
import re
import subprocess
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from pydantic import SecretStr

from core import clock
from core.queues import Queue
from devstack import LOOPBACK
from devstack.harness.free_ports import free_port
from devstack.harness.polling import eventually
from devstack.harness.stack import Stack
from services.accounts.account_mails import MailKind, enqueue_mail
from services.backup import manifests
from services.backup.manifests import Manifest
from storage.backup_files.places import open_sealed_place
from storage.redis.canaries import Canaries
from tests.support.commands.running import pressroom, run_command_process
from tests.support.http.servers import silent_server

PASSING_CHECKS = {
    ("database", "connection"),
    ("database", "version"),
    ("database", "clock"),
    ("database", "role"),
    ("database", "revision"),
    ("database", "extensions"),
    ("database", "connections"),
    ("database", "log"),
    ("database", "write"),
    ("redis", "connection"),
    ("redis", "version"),
    ("redis", "policy"),
    ("redis", "memory"),
    ("redis", "persistence"),
    *(("workers", str(queue)) for queue in Queue),
    ("workers", "version"),
    ("maintenance", "schedule"),
    ("maintenance", "last runs"),
    ("object storage", "bucket"),
    ("object storage", "write"),
    ("object storage", "read"),
    ("object storage", "range"),
    ("object storage", "policy"),
    ("object storage", "delete"),
    ("mail", "login"),
    ("mail", "waiting"),
    ("senders", "newest reports"),
    ("senders", "clock"),
    ("senders", "certificates"),
    ("public URL", "reachable"),
    ("public URL", "proxy headers"),
    ("public URL", "invented address"),
    ("providers", "payments sandbox"),
    ("providers", "turnstile"),
    ("providers", "hcaptcha"),
    ("providers", "recaptcha"),
    ("providers", "unsplash"),
}
UNUSED_ADDRESS = f"{LOOPBACK}:9"


@pytest.fixture(autouse=True, scope="module")
def _wait_for_canaries(stack: Stack) -> None:
    ages = Canaries(stack.resources.redis).read_ages
    eventually(lambda: set(Queue) <= set(ages()), what="the first canaries of all queues")


def run_doctor(
    stack: Stack, *options: str, **environment: str
) -> tuple[int, dict[tuple[str, str], dict[str, Any]]]:
    """Run the command ``doctor``, and return its exit code and its findings.

    The key of a finding is a pair such as ``("database", "revision")``: a part of the installation,
    and a check of this part.
    """
    return parse_findings(pressroom(stack, "doctor", "--json", *options, **environment))


def parse_findings(
    process: subprocess.CompletedProcess[str],
) -> tuple[int, dict[tuple[str, str], dict[str, Any]]]:
    assert process.stderr == ""
    findings = json.loads(process.stdout)
    return process.returncode, {
        (finding["part"], finding["check"]): finding for finding in findings
    }


def select_faults(
    findings: dict[tuple[str, str], dict[str, Any]],
) -> dict[tuple[str, str], dict[str, Any]]:
    return {check: finding for check, finding in findings.items() if finding["state"] == "wrong"}


def replace_host(url: str, address: str) -> str:
    """Return the URL with another host and port."""
    return re.sub(r"(?<=@)[^/]+|(?<=://)[^/@]+(?=/|$)", address, url, count=1)


def test_doctor_reports_no_faults_for_a_working_stack(stack: Stack) -> None:
    exit_code, findings = run_doctor(stack)
    assert select_faults(findings) == {}
    assert exit_code == 0
    passing_checks = {name for name, each in findings.items() if each["state"] == "fine"}
    assert passing_checks == PASSING_CHECKS
    skipped_checks = {name for name, each in findings.items() if each["state"] == "skipped"}
    assert skipped_checks == {
        ("database", "replica"),
        ("broker", "connection"),
        ("backup", "newest"),
        ("mail", "sending"),
    }
    assert stack.stored("doctor/") == []


def test_doctor_prints_a_table_with_advice(stack: Stack) -> None:
    process = pressroom(stack, "doctor", PRESSROOM_REDIS_URL=f"redis://{UNUSED_ADDRESS}/0")
    assert process.returncode == 1
    [row] = [line for line in process.stdout.splitlines() if "✗" in line]
    assert "redis" in row
    assert "Check the settings for" in row
    assert "✓" in process.stdout


def test_doctor_sends_a_test_mail_to_the_given_address(stack: Stack) -> None:
    exit_code, findings = run_doctor(stack, "--send", "operator@example.com")
    assert exit_code == 0
    assert findings["mail", "sending"]["state"] == "fine"
    [mail] = stack.mails("operator@example.com")
    assert mail["subject"] == "Pressroom test mail"


def test_doctor_without_mail_settings_warns_and_names_the_command_that_checks_mail(
    stack: Stack,
) -> None:
    exit_code, findings = run_doctor(stack, PRESSROOM_MAIL_URL="")
    assert exit_code == 0
    login = findings["mail", "login"]
    assert login["state"] == "warning"
    assert "docker compose exec worker-waiting pressroom doctor" in login["advice"]
    table = pressroom(stack, "doctor", PRESSROOM_MAIL_URL="").stdout
    [row] = [line for line in table.splitlines() if "│ ! " in line]
    assert "PRESSROOM_MAIL_URL" in row


def test_doctor_fails_where_a_mail_has_waited_for_ten_minutes(
    make_stack: Callable[[str], Stack], stack: Stack
) -> None:
    idle_stack = make_stack("silent")
    idle_database = {"PRESSROOM_DATABASE_URL": idle_stack.environment["PRESSROOM_DATABASE_URL"]}
    api_environment = {**idle_database, "PRESSROOM_MAIL_URL": ""}
    with idle_stack.resources.unit_of_work() as uow:
        enqueue_mail(uow, MailKind.FORGOTTEN_PASSWORD, "ada@example.com")
    set_times = (
        "UPDATE jobs SET run_at = now() + %s::interval, failing_since = now() + %s::interval"
    )
    for run_at, failing_since, is_late in (
        ("-9 min", None, False),
        ("-11 min", None, True),
        # A reminder that isn't due yet.
        ("20 min", None, False),
        ("1 min", "-9 min", False),
        # The next attempt isn't due yet, but the mail has failed for longer than ten minutes.
        ("1 min", "-11 min", True),
    ):
        idle_stack.query(set_times, run_at, failing_since)
        exit_code, findings = run_doctor(stack, **api_environment)
        assert findings["mail", "waiting"]["state"] == ("wrong" if is_late else "fine")
        assert exit_code == int(is_late)
    idle_stack.query("UPDATE jobs SET last_reason = 'PRESSROOM_MAIL_URL is not set.'")
    _, findings = run_doctor(stack, **api_environment)
    finding = findings["mail", "waiting"]
    assert finding["found"] == "1 unsent, the oldest for 11 min: PRESSROOM_MAIL_URL is not set."
    idle_stack.query("UPDATE jobs SET status = 'succeeded', finished_at = now()")
    assert run_doctor(stack, **api_environment)[0] == 0


URL_SETTINGS = {
    "database": "PRESSROOM_DATABASE_URL",
    "redis": "PRESSROOM_REDIS_URL",
    "object storage": "PRESSROOM_S3_ENDPOINT",
    "mail": "PRESSROOM_MAIL_URL",
    "public URL": "PRESSROOM_PUBLIC_URL",
    "providers": "PRESSROOM_TURNSTILE_URL",
}


@pytest.mark.parametrize("part", URL_SETTINGS)
def test_doctor_names_only_the_part_that_is_unreachable(stack: Stack, part: str) -> None:
    setting = URL_SETTINGS[part]
    exit_code, findings = run_doctor(
        stack, **{setting: replace_host(stack.environment[setting], UNUSED_ADDRESS)}
    )
    assert exit_code == 1
    assert {name for name, _ in select_faults(findings)} == {part}
    assert all(each["advice"] for each in select_faults(findings).values())


@pytest.mark.tier("faults")
def test_doctor_finishes_although_servers_hang(stack: Stack) -> None:
    with silent_server() as silent_address:
        hanging_urls = {
            setting: replace_host(stack.environment[setting], silent_address)
            for setting in URL_SETTINGS.values()
        }
        arguments = ("doctor", "--json", "--seconds", "5")
        # Run the command in a separate process, to test that the process ends although some of its
        # threads hang.
        exit_code, findings = parse_findings(
            run_command_process({**stack.environment, **hanging_urls}, *arguments)
        )
    assert exit_code == 1
    assert {name for name, _ in select_faults(findings)} == set(URL_SETTINGS)
    assert ("backup", "newest") in findings


def test_doctor_finds_queues_without_workers_and_overdue_maintenance(
    make_stack: Callable[[str], Stack], stack: Stack
) -> None:
    idle_stack = make_stack("deserted")
    settings = ("PRESSROOM_DATABASE_URL", "PRESSROOM_REDIS_URL")
    idle_services = {name: idle_stack.environment[name] for name in settings}
    exit_code, findings = run_doctor(stack, **idle_services)
    assert exit_code == 1
    assert set(select_faults(findings)) == {("workers", str(queue)) for queue in Queue}
    assert findings["maintenance", "schedule"]["state"] == "skipped"

    redis = idle_stack.resources.redis
    canaries = Canaries(redis)
    for queue in Queue:
        sent_at = canaries.start_if_due(queue)
        assert sent_at is not None
        canaries.record_arrival(queue, sent_at, "0.0.1")
    old_time = str(redis.time()[0] - 100)
    old_canaries: dict[Any, Any] = {
        f"{Queue.EXPORT}:sent": old_time,
        f"{Queue.MEDIA}:waiting": old_time,
    }
    redis.hset("pressroom:canaries", mapping=old_canaries)
    idle_stack.query(
        "INSERT INTO maintenance (name, every_seconds, due_at, last_error) VALUES"
        " ('late', 60, now() - interval '5 h', NULL), ('broken', 60, now(), 'OSError: full')"
    )
    exit_code, findings = run_doctor(stack, **idle_services)
    assert exit_code == 1
    texts = {name: each["found"] for name, each in select_faults(findings).items()}
    assert re.fullmatch(r"no worker has .* for 10\d s", texts.pop(("workers", Queue.EXPORT)))
    assert re.fullmatch(r"a message waits 10\d\.\d\d s", texts.pop(("workers", Queue.MEDIA)))
    assert texts == {
        ("maintenance", "schedule"): "overdue: late (5 h)",
        ("maintenance", "last runs"): "broken: OSError: full",
    }
    assert findings["workers", "version"]["found"].startswith(
        "workers have 0.0.1, this command has "
    )


def test_doctor_finds_missing_or_outdated_backup(stack: Stack, tmp_path: Path) -> None:
    environment = {
        "PRESSROOM_BACKUP_URL": f"file://{tmp_path}",
        "PRESSROOM_BACKUP_KEYS": f"k1:{'A' * 43}",
    }
    exit_code, findings = run_doctor(stack, **environment)
    assert (exit_code, findings["backup", "newest"]["found"]) == (1, "there is no backup yet")
    url, keys = (SecretStr(value) for value in environment.values())
    settings = stack.settings().model_copy(update={"backup_url": url, "backup_keys": keys})
    backup_place = open_sealed_place(settings)
    now = clock.now()
    for age, state in ((timedelta(hours=31), "wrong"), (timedelta(hours=25), "fine")):
        began_at = now - age
        manifests.write_manifest(
            backup_place,
            Manifest(
                id=manifests.create_backup_id(began_at),
                began_at=began_at,
                finished_at=began_at,
                release="1",
                revision="0001",
                database_pieces=0,
                database_bytes=0,
                object_lists=0,
                objects=0,
                copied=0,
                secret_keys={},
                encryption_keys={},
            ),
        )
        assert run_doctor(stack, **environment)[1]["backup", "newest"]["state"] == state


@pytest.mark.parametrize(
    ("part", "setting"), [("database", "PRESSROOM_DATABASE_URL"), ("redis", "PRESSROOM_REDIS_URL")]
)
def test_doctor_finds_wrong_password_and_hides_the_password(
    stack: Stack, part: str, setting: str
) -> None:
    url = re.sub(r":[^:@/]+@", ":hunter2@", stack.environment[setting])
    exit_code, findings = run_doctor(stack, **{setting: url})
    assert exit_code == 1
    assert {name for name, _ in select_faults(findings)} == {part}
    assert "hunter2" not in json.dumps(list(findings.values()))
    assert "password" in json.dumps(list(select_faults(findings).values()))


def test_doctor_finds_missing_bucket(stack: Stack) -> None:
    exit_code, findings = run_doctor(stack, PRESSROOM_S3_BUCKET="pressroom-that-nobody-made")
    assert exit_code == 1
    assert {name for name, _ in select_faults(findings)} == {"object storage"}
    # The hints for wrong object storage settings other than the bucket name are tested in
    # tests/storage/s3_access/test_regions.py.
    assert "check PRESSROOM_S3_BUCKET" in json.dumps(list(select_faults(findings).values()))


def test_doctor_finds_outdated_database_schema(
    make_stack: Callable[[str], Stack], stack: Stack
) -> None:
    outdated_stack = make_stack("oldtables")
    outdated_stack.query("UPDATE alembic_version SET version_num = '0001'")
    outdated_database = {
        "PRESSROOM_DATABASE_URL": outdated_stack.environment["PRESSROOM_DATABASE_URL"]
    }
    exit_code, findings = run_doctor(stack, **outdated_database)
    assert exit_code == 1
    assert set(select_faults(findings)) == {("database", "revision")}
    assert "pressroom migrate" in findings["database", "revision"]["advice"]
    outdated_stack.query("UPDATE alembic_version SET version_num = '9999'")
    assert run_doctor(stack, **outdated_database)[0] == 0


def test_doctor_finds_database_role_without_timeouts(
    make_stack: Callable[[str], Stack], stack: Stack
) -> None:
    unlimited_stack = make_stack("unlimited")
    url = urlsplit(unlimited_stack.environment["PRESSROOM_DATABASE_URL"])
    unlimited_stack.query(f"ALTER ROLE {url.username} IN DATABASE {url.path[1:]} RESET ALL")
    exit_code, findings = run_doctor(stack, PRESSROOM_DATABASE_URL=url.geturl())
    assert exit_code == 1
    assert set(select_faults(findings)) == {("database", "role")}
    assert "pressroom migrate" in findings["database", "role"]["advice"]


def test_doctor_advises_against_logging_statement_values(
    make_stack: Callable[[str], Stack], stack: Stack
) -> None:
    logging_stack = make_stack("loudlog")
    for setting, value in (("log_error_verbosity", "default"), ("log_statement", "mod")):
        logging_stack.query(f"ALTER DATABASE {logging_stack.name} SET {setting} = %s", value)
    url = logging_stack.environment["PRESSROOM_DATABASE_URL"]
    exit_code, findings = run_doctor(stack, PRESSROOM_DATABASE_URL=url)
    assert exit_code == 0
    assert findings["database", "log"]["advice"] == (
        "Set log_error_verbosity = terse, log_statement = none."
    )
    assert run_doctor(stack)[1]["database", "log"]["advice"] == ""


def test_doctor_names_provider_keys_that_are_rejected(stack: Stack) -> None:
    exit_code, findings = run_doctor(
        stack,
        PRESSROOM_PAYMENTS_SANDBOX_SECRET_KEY="sk_test_nobody",
        PRESSROOM_HCAPTCHA_SECRET="nobody",
        PRESSROOM_UNSPLASH_ACCESS_KEY="nobody",
    )
    assert exit_code == 1
    rejected_providers = {"payments sandbox", "hcaptcha", "unsplash"}
    assert set(select_faults(findings)) == {("providers", name) for name in rejected_providers}
    assert findings["providers", "hcaptcha"]["advice"] == "Check PRESSROOM_HCAPTCHA_SECRET."
    assert "nobody" not in json.dumps(list(findings.values()))


def test_doctor_finds_api_that_trusts_forged_client_addresses(stack: Stack) -> None:
    with stack.run_second_api(PRESSROOM_TRUSTED_PROXIES=LOOPBACK) as api:
        exit_code, findings = run_doctor(stack, PRESSROOM_PUBLIC_URL=api.api_url)
    assert exit_code == 1
    assert set(select_faults(findings)) == {("public URL", "invented address")}


def test_doctor_finds_reader_host_that_serves_the_login(stack: Stack) -> None:
    port = free_port()
    pages_environment = {
        "PRESSROOM_PUBLIC_URL": f"http://{LOOPBACK}:{port}",
        "PRESSROOM_PAGES_URL": f"http://localhost:{port}",
    }
    for api_environment, state in ((pages_environment, "fine"), ({}, "wrong")):
        with stack.run_second_api(port, **api_environment):
            _, findings = run_doctor(stack, **pages_environment)
        assert findings["public URL", "readers' pages"]["state"] == state
    assert "Host header" in findings["public URL", "readers' pages"]["advice"]


def test_client_address_seen_by_the_api_is_shown_only_to_holders_of_secret_keys(
    stack: Stack, stranger: httpx2.Client
) -> None:
    for query in ({}, {"expires": "99999999999", "signature": "k.forged"}):
        assert "pressroom-seen" not in stranger.get("/healthz", params=query).headers
    other_key = f"k1:{'A' * 43}"
    _, findings = run_doctor(stack, PRESSROOM_SECRET_KEYS=other_key)
    assert findings["public URL", "proxy headers"]["state"] == "skipped"


def test_doctor_names_every_missing_setting(stack: Stack) -> None:
    exit_code, findings = run_doctor(stack, PRESSROOM_REDIS_URL="", PRESSROOM_PUBLIC_URL="")
    assert exit_code == 1
    missing_settings = {("settings", "PRESSROOM_REDIS_URL"), ("settings", "PRESSROOM_PUBLIC_URL")}
    assert set(select_faults(findings)) == set(findings) == missing_settings
