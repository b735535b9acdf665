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
from services.accounts.account_mails import MailKind, request_mail
from services.backup import manifests
from services.backup.manifests import Manifest
from storage.backup_files.places import open_sealed_place
from storage.redis.canaries import Canaries
from tests.support.commands.running import ended_process, pressroom
from tests.support.http.servers import silent_server

ALL_FINE = {
    ("database", "connection"),
    ("database", "version"),
    ("database", "clock"),
    ("database", "role"),
    ("database", "revision"),
    ("database", "extensions"),
    ("database", "connections"),
    ("database", "log"),
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
NOBODY = f"{LOOPBACK}:9"


@pytest.fixture(autouse=True, scope="module")
def _wait_for_canaries(stack: Stack) -> None:
    ages = Canaries(stack.resources.redis).read_ages
    eventually(lambda: set(Queue) <= set(ages()), what="the first canaries of all queues")


def doctor(
    stack: Stack, *words: str, **environment: str
) -> tuple[int, dict[tuple[str, str], dict[str, Any]]]:
    """The exit code, and what was found by part and check."""
    return read(pressroom(stack, "doctor", "--json", *words, **environment))


def read(
    done: subprocess.CompletedProcess[str],
) -> tuple[int, dict[tuple[str, str], dict[str, Any]]]:
    assert done.stderr == ""
    found = json.loads(done.stdout)
    return done.returncode, {(each["part"], each["check"]): each for each in found}


def faults(found: dict[tuple[str, str], dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    return {name: each for name, each in found.items() if each["state"] == "wrong"}


def at(url: str, place: str) -> str:
    """The URL with another host and port."""
    return re.sub(r"(?<=@)[^/]+|(?<=://)[^/@]+(?=/|$)", place, url, count=1)


def test_doctor_reports_no_faults_for_a_working_stack(stack: Stack) -> None:
    code, found = doctor(stack)
    assert faults(found) == {}
    assert code == 0
    fine = {name for name, each in found.items() if each["state"] == "fine"}
    assert fine == ALL_FINE
    skipped = {name for name, each in found.items() if each["state"] == "skipped"}
    assert skipped == {
        ("database", "replica"),
        ("broker", "connection"),
        ("backup", "newest"),
        ("mail", "sending"),
    }
    assert stack.stored("doctor/") == []


def test_doctor_prints_a_table_with_advice(stack: Stack) -> None:
    done = pressroom(stack, "doctor", PRESSROOM_REDIS_URL=f"redis://{NOBODY}/0")
    assert done.returncode == 1
    [row] = [line for line in done.stdout.splitlines() if "✗" in line]
    assert "redis" in row
    assert "Check the settings for" in row
    assert "✓" in done.stdout


def test_doctor_sends_a_test_mail_to_the_given_address(stack: Stack) -> None:
    code, found = doctor(stack, "--send", "operator@example.com")
    assert code == 0
    assert found["mail", "sending"]["state"] == "fine"
    [mail] = stack.mails("operator@example.com")
    assert mail["subject"] == "Pressroom test mail"


def test_doctor_without_mail_settings_warns_and_names_the_command_that_checks_mail(
    stack: Stack,
) -> None:
    code, found = doctor(stack, PRESSROOM_MAIL_URL="")
    assert code == 0
    login = found["mail", "login"]
    assert login["state"] == "warning"
    assert "docker compose exec worker-waiting pressroom doctor" in login["advice"]
    table = pressroom(stack, "doctor", PRESSROOM_MAIL_URL="").stdout
    [row] = [line for line in table.splitlines() if "│ ! " in line]
    assert "PRESSROOM_MAIL_URL" in row


def test_doctor_fails_where_a_mail_has_waited_for_ten_minutes(
    make_stack: Callable[[str], Stack], stack: Stack
) -> None:
    silent = make_stack("silent")
    elsewhere = {"PRESSROOM_DATABASE_URL": silent.environment["PRESSROOM_DATABASE_URL"]}
    api = {**elsewhere, "PRESSROOM_MAIL_URL": ""}
    with silent.resources.unit_of_work() as uow:
        request_mail(uow, MailKind.FORGOTTEN_PASSWORD, "ada@example.com")
    change = "UPDATE jobs SET run_at = now() + %s::interval, failing_since = now() + %s::interval"
    for run_at, failing_since, is_late in (
        ("-9 min", None, False),
        ("-11 min", None, True),
        # A reminder that isn't due yet.
        ("20 min", None, False),
        ("1 min", "-9 min", False),
        # The next attempt isn't due yet, but the mail has failed for longer than ten minutes.
        ("1 min", "-11 min", True),
    ):
        silent.query(change, run_at, failing_since)
        code, found = doctor(stack, **api)
        assert found["mail", "waiting"]["state"] == ("wrong" if is_late else "fine")
        assert code == int(is_late)
    silent.query("UPDATE jobs SET last_reason = 'PRESSROOM_MAIL_URL is not set.'")
    _, found = doctor(stack, **api)
    shown = found["mail", "waiting"]
    assert shown["found"] == "1 unsent, the oldest for 11 min: PRESSROOM_MAIL_URL is not set."
    silent.query("UPDATE jobs SET status = 'succeeded', finished_at = now()")
    assert doctor(stack, **api)[0] == 0


URLS = {
    "database": "PRESSROOM_DATABASE_URL",
    "redis": "PRESSROOM_REDIS_URL",
    "object storage": "PRESSROOM_S3_ENDPOINT",
    "mail": "PRESSROOM_MAIL_URL",
    "public URL": "PRESSROOM_PUBLIC_URL",
    "providers": "PRESSROOM_TURNSTILE_URL",
}


@pytest.mark.parametrize("part", URLS)
def test_doctor_names_only_the_part_that_is_unreachable(stack: Stack, part: str) -> None:
    setting = URLS[part]
    code, found = doctor(stack, **{setting: at(stack.environment[setting], NOBODY)})
    assert code == 1
    assert {name for name, _ in faults(found)} == {part}
    assert all(each["advice"] for each in faults(found).values())


@pytest.mark.tier("faults")
def test_doctor_finishes_although_servers_hang(stack: Stack) -> None:
    with silent_server() as place:
        hanging = {each: at(stack.environment[each], place) for each in URLS.values()}
        words = ("doctor", "--json", "--seconds", "5")
        # A process of its own, which ends while some of its threads hang.
        code, found = read(ended_process({**stack.environment, **hanging}, *words))
    assert code == 1
    assert {name for name, _ in faults(found)} == set(URLS)
    assert ("backup", "newest") in found


def test_doctor_finds_queues_without_workers_and_overdue_maintenance(
    make_stack: Callable[[str], Stack], stack: Stack
) -> None:
    deserted = make_stack("deserted")
    names = ("PRESSROOM_DATABASE_URL", "PRESSROOM_REDIS_URL")
    elsewhere = {name: deserted.environment[name] for name in names}
    code, found = doctor(stack, **elsewhere)
    assert code == 1
    assert set(faults(found)) == {("workers", str(queue)) for queue in Queue}
    assert found["maintenance", "schedule"]["state"] == "skipped"

    redis = deserted.resources.redis
    canaries = Canaries(redis)
    for queue in Queue:
        sent = canaries.start_if_due(queue)
        assert sent is not None
        canaries.record_arrival(queue, sent, "0.0.1")
    long_ago = str(redis.time()[0] - 100)
    changed: dict[Any, Any] = {f"{Queue.EXPORT}:sent": long_ago, f"{Queue.MEDIA}:waiting": long_ago}
    redis.hset("pressroom:canaries", mapping=changed)
    deserted.query(
        "INSERT INTO maintenance (name, every_seconds, due_at, last_error) VALUES"
        " ('late', 60, now() - interval '5 h', NULL), ('broken', 60, now(), 'OSError: full')"
    )
    code, found = doctor(stack, **elsewhere)
    assert code == 1
    shown = {name: each["found"] for name, each in faults(found).items()}
    assert re.fullmatch(r"no worker has .* for 10\d s", shown.pop(("workers", Queue.EXPORT)))
    assert re.fullmatch(r"a message waits 10\d\.\d\d s", shown.pop(("workers", Queue.MEDIA)))
    assert shown == {
        ("maintenance", "schedule"): "overdue: late (5 h)",
        ("maintenance", "last runs"): "broken: OSError: full",
    }
    assert found["workers", "version"]["found"].startswith("workers have 0.0.1, this command has ")


def test_doctor_finds_missing_or_outdated_backup(stack: Stack, tmp_path: Path) -> None:
    given = {
        "PRESSROOM_BACKUP_URL": f"file://{tmp_path}",
        "PRESSROOM_BACKUP_KEYS": f"k1:{'A' * 43}",
    }
    code, found = doctor(stack, **given)
    assert (code, found["backup", "newest"]["found"]) == (1, "there is no backup yet")
    url, keys = (SecretStr(value) for value in given.values())
    settings = stack.settings().model_copy(update={"backup_url": url, "backup_keys": keys})
    place = open_sealed_place(settings)
    now = clock.now()
    for age, state in ((timedelta(hours=31), "wrong"), (timedelta(hours=25), "fine")):
        began_at = now - age
        manifests.write_manifest(
            place,
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
        assert doctor(stack, **given)[1]["backup", "newest"]["state"] == state


@pytest.mark.parametrize(
    ("part", "setting"), [("database", "PRESSROOM_DATABASE_URL"), ("redis", "PRESSROOM_REDIS_URL")]
)
def test_doctor_finds_wrong_password_and_hides_the_password(
    stack: Stack, part: str, setting: str
) -> None:
    url = re.sub(r":[^:@/]+@", ":hunter2@", stack.environment[setting])
    code, found = doctor(stack, **{setting: url})
    assert code == 1
    assert {name for name, _ in faults(found)} == {part}
    assert "hunter2" not in json.dumps(list(found.values()))
    assert "password" in json.dumps(list(faults(found).values()))


def test_doctor_finds_missing_bucket(stack: Stack) -> None:
    code, found = doctor(stack, PRESSROOM_S3_BUCKET="pressroom-that-nobody-made")
    assert code == 1
    assert {name for name, _ in faults(found)} == {"object storage"}
    # The sentence is the one of tests/storage/s3_access/test_regions.py.
    assert "check PRESSROOM_S3_BUCKET" in json.dumps(list(faults(found).values()))


def test_doctor_finds_outdated_database_schema(
    make_stack: Callable[[str], Stack], stack: Stack
) -> None:
    old = make_stack("oldtables")
    old.query("UPDATE alembic_version SET version_num = '0001'")
    elsewhere = {"PRESSROOM_DATABASE_URL": old.environment["PRESSROOM_DATABASE_URL"]}
    code, found = doctor(stack, **elsewhere)
    assert code == 1
    assert set(faults(found)) == {("database", "revision")}
    assert "pressroom migrate" in found["database", "revision"]["advice"]
    old.query("UPDATE alembic_version SET version_num = '9999'")
    assert doctor(stack, **elsewhere)[0] == 0


def test_doctor_finds_database_role_without_timeouts(
    make_stack: Callable[[str], Stack], stack: Stack
) -> None:
    other = make_stack("unlimited")
    url = urlsplit(other.environment["PRESSROOM_DATABASE_URL"])
    other.query(f"ALTER ROLE {url.username} IN DATABASE {url.path[1:]} RESET ALL")
    code, found = doctor(stack, PRESSROOM_DATABASE_URL=url.geturl())
    assert code == 1
    assert set(faults(found)) == {("database", "role")}
    assert "pressroom migrate" in found["database", "role"]["advice"]


def test_doctor_advises_against_logging_statement_values(
    make_stack: Callable[[str], Stack], stack: Stack
) -> None:
    loud = make_stack("loudlog")
    for setting, value in (("log_error_verbosity", "default"), ("log_statement", "mod")):
        loud.query(f"ALTER DATABASE {loud.name} SET {setting} = %s", value)
    url = loud.environment["PRESSROOM_DATABASE_URL"]
    code, found = doctor(stack, PRESSROOM_DATABASE_URL=url)
    assert code == 0
    assert found["database", "log"]["advice"] == (
        "Set log_error_verbosity = terse, log_statement = none."
    )
    assert doctor(stack)[1]["database", "log"]["advice"] == ""


def test_doctor_names_provider_keys_that_are_rejected(stack: Stack) -> None:
    code, found = doctor(
        stack,
        PRESSROOM_PAYMENTS_SANDBOX_SECRET_KEY="sk_test_nobody",
        PRESSROOM_HCAPTCHA_SECRET="nobody",
        PRESSROOM_UNSPLASH_ACCESS_KEY="nobody",
    )
    assert code == 1
    refused = {"payments sandbox", "hcaptcha", "unsplash"}
    assert set(faults(found)) == {("providers", name) for name in refused}
    assert found["providers", "hcaptcha"]["advice"] == "Check PRESSROOM_HCAPTCHA_SECRET."
    assert "nobody" not in json.dumps(list(found.values()))


def test_doctor_finds_api_that_trusts_forged_client_addresses(stack: Stack) -> None:
    with stack.run_second_api(PRESSROOM_TRUSTED_PROXIES=LOOPBACK) as api:
        code, found = doctor(stack, PRESSROOM_PUBLIC_URL=api.api_url)
    assert code == 1
    assert set(faults(found)) == {("public URL", "invented address")}


def test_doctor_finds_reader_host_that_serves_the_login(stack: Stack) -> None:
    port = free_port()
    own = {
        "PRESSROOM_PUBLIC_URL": f"http://{LOOPBACK}:{port}",
        "PRESSROOM_PAGES_URL": f"http://localhost:{port}",
    }
    for given, state in ((own, "fine"), ({}, "wrong")):
        with stack.run_second_api(port, **given):
            _, found = doctor(stack, **own)
        assert found["public URL", "readers' pages"]["state"] == state
    assert "Host header" in found["public URL", "readers' pages"]["advice"]


def test_client_address_seen_by_the_api_is_shown_only_to_holders_of_secret_keys(
    stack: Stack, stranger: httpx2.Client
) -> None:
    for query in ({}, {"expires": "99999999999", "signature": "k.forged"}):
        assert "pressroom-seen" not in stranger.get("/healthz", params=query).headers
    other_key = f"k1:{'A' * 43}"
    _, found = doctor(stack, PRESSROOM_SECRET_KEYS=other_key)
    assert found["public URL", "proxy headers"]["state"] == "skipped"


def test_doctor_names_every_missing_setting(stack: Stack) -> None:
    code, found = doctor(stack, PRESSROOM_REDIS_URL="", PRESSROOM_PUBLIC_URL="")
    assert code == 1
    missing = {("settings", "PRESSROOM_REDIS_URL"), ("settings", "PRESSROOM_PUBLIC_URL")}
    assert set(faults(found)) == set(found) == missing
