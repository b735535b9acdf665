"""Tests of the CLI commands and settings on which scripts rely."""

import csv
import gzip
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest

from cli import accounts
from devstack.harness.stack import Owner, Stack
from tests.support.commands.running import (
    pressroom,
    require_command_error,
    run_command,
    run_command_process,
    run_json_command,
)
from tests.support.http.replies import TIMESTAMP, data, problem, send
from tests.support.imports.bulk import (
    active_members,
    build_address_file,
    build_addresses,
    build_csv,
    import_members_file,
    list_stored_keys,
    nonzero_counts,
)
from tests.support.lists.acting import ListActions
from tests.support.lists.subscribers import new_address, read_subscriber_count, require_member
from tests.support.people.visiting import PASSWORD


def test_cli_creates_users_and_changes_their_plan_and_lists_them(stack: Stack) -> None:
    email = "Ada.Writer+news@Example.com"
    user = run_json_command(
        stack, "users", "create", email, "--name", "Ada", "--password", PASSWORD
    )
    assert user["email"] == email.lower()
    assert (user["name"], user["plan"]) == ("Ada", "free")
    assert 0 < user["id"] < 2**53
    assert TIMESTAMP.fullmatch(user["created_at"])
    assert run_json_command(stack, "users", "plan", email, "paid")["plan"] == "paid"
    users = run_json_command(stack, "users", "list")
    assert [each["plan"] for each in users if each["id"] == user["id"]] == ["paid"]
    assert users == sorted(users, key=lambda each: str(each["created_at"]), reverse=True)
    [(password_hash,)] = stack.query("SELECT password_hash FROM users WHERE id = %s", user["id"])
    assert str(password_hash).startswith("$argon2id$")
    create_command = ("users", "create", email.upper(), "--name", "Again", "--password", PASSWORD)
    require_command_error(stack, "user.exists", *create_command)


@pytest.mark.parametrize(
    ("code", "arguments"),
    [
        ("email.invalid", ["users", "create", "nobody", "--name", "N", "--password", PASSWORD]),
        ("password.length", ["users", "create", "x@example.com", "--name", "N", "--password", "x"]),
        ("user.not_found", ["users", "plan", "nobody@example.com", "paid"]),
        ("user.not_found", ["users", "erase", "nobody@example.com"]),
        ("user.not_found", ["keys", "create", "nobody@example.com", "--name", "n"]),
        ("api_key.not_found", ["keys", "revoke", "999999999"]),
        ("job.not_found", ["jobs", "show", "999999999"]),
    ],
)
def test_cli_command_exits_with_1_and_names_the_error(
    stack: Stack, code: str, arguments: list[str]
) -> None:
    require_command_error(stack, code, *arguments)


def test_cli_ends_memberships_and_mail_of_an_erased_person_without_a_worker(
    stack_without_workers: Stack,
    owner_without_workers: Owner,
    client_without_workers: httpx2.Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stack = stack_without_workers
    acting = ListActions(stack, client_without_workers)
    person = acting.new_person(with_login=True)
    list_ids = [
        acting.new_list(owner_without_workers, confirm_required=False, challenge=False)
        for _ in range(3)
    ]
    for list_id in list_ids:
        acting.reply("POST", f"/subscriptions/{list_id}/no-challenge", key=person.key)
    acting.leave(list_ids[0], key=person.key)
    monkeypatch.setattr(accounts, "MAX_ERASURE_WAIT_SECONDS", 1.0)
    command = ("users", "erase", person.address)
    first_process = pressroom(stack, *command, "--json")
    assert first_process.returncode == 0, first_process.stderr
    assert "start one with --queue maintenance" in first_process.stderr
    result = json.loads(first_process.stdout)
    assert result == {
        "user_id": person.user_id,
        "subscriptions": 3,
        "opt_outs_kept": 1,
        "lists": 0,
        "attachments": 0,
        "keys": 0,
        "jobs": 0,
        "job_id": result["job_id"],
        "status": "queued",
    }
    for list_id in list_ids:
        path = f"/lists/{list_id}/subscriptions"
        [member] = data(client_without_workers.get(path, params={"status": "removed"}))["items"]
        assert (member["email"], member["name"], member["email_enabled"]) == (None, None, False)
    # A repeated command doesn't count or record anything twice.
    assert json.loads(pressroom(stack, *command, "--json").stdout) == result
    events = "SELECT count(*) FROM subscription_events WHERE user_id = %s AND action = 'erased'"
    assert stack.query(events, person.user_id) == [(3,)]


def test_cli_process_prints_the_same_output_as_an_in_process_call(
    stack: Stack, owner: Owner
) -> None:
    for code, arguments in (
        (0, ("keys", "list", owner.email)),
        (1, ("jobs", "show", "999999999")),
        (2, ("users", "plan", owner.email, "gold")),
    ):
        process = run_command_process(stack.environment, *arguments)
        call = run_command(stack.environment, *arguments)
        assert call.returncode == process.returncode == code
        assert (call.stdout, call.stderr) == (process.stdout, process.stderr)


def test_cli_creates_and_lists_and_revokes_api_keys(
    stack: Stack, owner: Owner, stranger: httpx2.Client
) -> None:
    key = run_json_command(stack, "keys", "create", owner.email, "--name", "all")
    assert key["scopes"] is None
    stranger.headers["X-API-Key"] = key["key"]
    assert data(stranger.get("/users/me"))["id"] == owner.user_id
    keys = run_json_command(stack, "keys", "list", owner.email)
    assert set(keys[0]) == set(key) - {"key"}
    assert (keys[0]["id"], keys[0]["last_four"]) == (key["id"], key["key"][-4:])
    assert run_json_command(stack, "keys", "revoke", str(key["id"])) == {
        "id": key["id"],
        "revoked": 1,
    }
    problem(stranger.get("/users/me"), 401, "auth.invalid_credentials")
    assert run_json_command(stack, "keys", "revoke", str(key["id"])) == {
        "id": key["id"],
        "revoked": 0,
    }


def test_cli_creates_api_keys_with_an_expiry_and_rejects_a_past_expiry(
    stack: Stack, owner: Owner
) -> None:
    arguments = ("keys", "create", owner.email, "--name", "n", "--expires-at")
    assert (
        run_json_command(stack, *arguments, "2131-02-03")["expires_at"]
        == "2131-02-03T00:00:00.000000Z"
    )
    key = run_json_command(stack, *arguments, "2131-02-03T04:05:06")
    assert key["expires_at"] == "2131-02-03T04:05:06.000000Z"
    require_command_error(stack, "api_key.expiry", *arguments, "2001-02-03")


def test_cli_creates_api_keys_with_restricted_scopes_including_delivery(
    stack: Stack, owner: Owner
) -> None:
    scope_options = ["--scope", "delivery", "--scope", "attachment"]
    key = run_json_command(stack, "keys", "create", owner.email, "--name", "sender", *scope_options)
    assert key["scopes"] == ["attachment", "delivery"]
    with stack.client(key["key"]) as client:
        data(client.get("/attachments"))
        problem(client.get("/apikeys"), 403, "auth.restricted_credential")


def test_cli_creates_mailing_lists_with_and_without_confirmation(
    stack: Stack, owner: Owner
) -> None:
    slug = f"letter-{owner.user_id}"
    create_command = ("lists", "create", owner.email, "--title", "A letter", "--slug")
    mailing_list = run_json_command(stack, *create_command, slug)
    assert mailing_list == {
        "id": mailing_list["id"],
        "slug": slug,
        "title": "A letter",
        "user_id": owner.user_id,
    }
    assert 0 < mailing_list["id"] < 2**53
    open_list = run_json_command(stack, *create_command, f"open-{slug}", "--no-confirm")
    for created_list, requires_confirmation in ((mailing_list, True), (open_list, False)):
        record = run_json_command(stack, "lists", "show", created_list["slug"])
        assert record["confirm_required"] is requires_confirmation
    require_command_error(stack, "list.slug_taken", *create_command, slug)
    require_command_error(stack, "list.slug", *create_command, "12345")


def test_cli_lists_and_shows_jobs_and_refuses_to_retry_succeeded_jobs(
    stack: Stack, client: httpx2.Client
) -> None:
    request_id = "asked-by-a-script"
    client.headers["X-Request-ID"] = request_id
    attachment = data(send(client))
    [job] = data(client.get("/jobs"))["items"]
    job_record = run_json_command(stack, "jobs", "show", str(job["id"]))
    assert (job_record["kind"], job_record["status"]) == ("attachment.process", "succeeded")
    assert job_record["request_id"] == request_id
    assert job_record["result"] == {"hash_id": attachment["hash_id"]}
    jobs = run_json_command(stack, "jobs", "list", "--status", "succeeded", "--limit", "1000")
    assert job["id"] in [each["id"] for each in jobs]
    assert {each["status"] for each in jobs} == {"succeeded"}
    require_command_error(stack, "job.not_retryable", "jobs", "retry", str(job["id"]))


def test_cli_migrate_prints_the_revision_and_is_idempotent(stack: Stack) -> None:
    [(revision,)] = stack.query("SELECT version_num FROM alembic_version")
    assert run_json_command(stack, "migrate") == {"revision": revision}


def test_cli_names_every_invalid_setting_and_exits_with_2(stack: Stack) -> None:
    invalid_settings = {
        "PRESSROOM_DATABASE_URL": "mysql://root:hunter2@db/x",
        "PRESSROOM_REDIS_URL": "",
        "PRESSROOM_PUBLIC_URL": "not a url",
        "PRESSROOM_SECRET_KEYS": "k1:hunter2",
        "PRESSROOM_ENCRYPTION_KEYS": "",
        "PRESSROOM_TRUSTED_PROXIES": "10.0.0.0/8, everybody",
        "PRESSROOM_API_KEY_HEADER": "Authorization",
        "PRESSROOM_LOG_LEVEL": "loud",
    }
    # `migrate` reads only a few settings, and ignores errors in all other settings.
    names_by_command = {
        "serve": set(invalid_settings),
        "migrate": {"PRESSROOM_DATABASE_URL", "PRESSROOM_LOG_LEVEL"},
    }
    for command, expected in names_by_command.items():
        process = pressroom(stack, command, **invalid_settings)
        assert process.returncode == 2
        assert {name for name in invalid_settings if f"{name}: " in process.stderr} == expected
        assert "hunter2" not in process.stderr
        assert "Traceback" not in process.stderr


@pytest.mark.parametrize(
    "arguments", [["serve"], ["worker", "--queue", "media"], ["users", "list"]]
)
def test_every_process_names_a_missing_setting_and_exits_with_2(
    stack: Stack, arguments: list[str]
) -> None:
    settings = stack.environment.items()
    process = run_command(
        {name: value for name, value in settings if name != "PRESSROOM_REDIS_URL"}, *arguments
    )
    assert process.returncode == 2
    assert "PRESSROOM_REDIS_URL: is required" in process.stderr
    assert "Traceback" not in process.stderr


@pytest.mark.parametrize("arguments", [["users", "list"], ["migrate"]])
def test_cli_reports_an_unreachable_database_without_traceback_and_password(
    stack: Stack, arguments: list[str]
) -> None:
    url = "postgresql://nobody:hunter2@127.0.0.1:9/none"
    process = pressroom(stack, *arguments, PRESSROOM_DATABASE_URL=url)
    assert process.returncode == 1
    assert "The database can't be used" in process.stderr
    assert "Traceback" not in process.stderr
    assert "hunter2" not in process.stderr


@pytest.fixture
def import_file(tmp_path: Path) -> Path:
    """The path at which a test writes a CSV file with members to import."""
    return tmp_path / "members.csv"


def test_cli_imports_a_file_as_the_owner_of_the_list(
    stack: Stack, client: httpx2.Client, mailing_list: dict[str, Any], import_file: Path
) -> None:
    emails = build_addresses(3)
    import_file.write_bytes(build_address_file(*emails))
    result = run_json_command(stack, "import", mailing_list["slug"], str(import_file))
    assert nonzero_counts(result) == {"received": 3, "added": 3}
    assert set(active_members(client, mailing_list["id"])) == set(emails)
    [record] = data(client.get("/imports"))["items"]
    assert (record["id"], record["filename"]) == (result["import_id"], "members.csv")
    assert data(client.get(f"/jobs/{result['job_id']}"))["status"] == "succeeded"


def test_cli_import_exits_with_3_and_writes_invalid_rows_to_the_error_file(
    stack: Stack, client: httpx2.Client, list_id: int, import_file: Path, tmp_path: Path
) -> None:
    import_file.write_bytes(build_address_file("nobody", new_address()))
    errors = tmp_path / "errors.csv"
    arguments = ("import", str(list_id), str(import_file), "--errors", str(errors), "--json")
    process = pressroom(stack, *arguments)
    assert (process.returncode, json.loads(process.stdout)["invalid"]) == (3, 1)
    [row] = csv.DictReader(io.StringIO(errors.read_text("utf-8-sig")))
    assert (row["Email"], row["line"], row["code"]) == ("nobody", "2", "email.invalid")
    assert read_subscriber_count(client, list_id) == 1


def test_cli_import_supports_mapping_and_update_and_dry_run(
    stack: Stack, client: httpx2.Client, list_id: int, import_file: Path
) -> None:
    email = new_address()
    import_members_file(client, list_id, build_address_file(email))
    import_file.write_bytes(build_csv(["Post", "Who"], [email, "Ada"], [new_address(), "Ben"]))
    mapping = ("--mapping", '{"Post": "email", "Who": "name"}')
    arguments = ("import", str(list_id), str(import_file), "--update", *mapping)
    preview = run_json_command(stack, *arguments, "--dry-run")
    assert require_member(client, list_id, email)["name"] is None
    result = run_json_command(stack, *arguments)
    assert (
        nonzero_counts(preview)
        == nonzero_counts(result)
        == {"received": 2, "added": 1, "already": 1, "updated": 1}
    )
    assert require_member(client, list_id, email)["name"] == "Ada"


def test_cli_import_prints_its_result_in_readable_lines(
    stack: Stack, list_id: int, import_file: Path
) -> None:
    email = new_address()
    rows = ([email, "01.02.24", "Köln", "ja"], [new_address(), "gestern", "Bonn", "nein"])
    import_file.write_bytes(build_csv(["E-Mail", "Angemeldet am", "Ort", "Newsletter"], *rows))
    process = pressroom(stack, "import", str(list_id), str(import_file), "--dry-run")
    lines = [line.strip() for line in process.stdout.splitlines()]
    assert f"line 2: {email}, free, active, joined 2024-02-01" in lines
    assert "line 3: row.not_subscribed, The file says that this person is not subscribed." in lines
    assert "Ort: ignored (left out)" in lines
    assert "E-Mail: email" in lines
    assert "{" not in process.stdout
    assert max(map(len, lines)) < 200


def test_cli_import_reads_a_file_from_a_pipe(
    stack: Stack, client: httpx2.Client, list_id: int
) -> None:
    process = subprocess.run(
        [sys.executable, "-m", "cli.main", "import", str(list_id), "-"],
        env=stack.environment,
        input=build_address_file(new_address()),
        capture_output=True,
        check=True,
    )
    assert b"added" in process.stdout
    assert read_subscriber_count(client, list_id) == 1


def test_cli_import_reports_an_unusable_file_and_stores_nothing(
    stack: Stack, list_id: int, import_file: Path, tmp_path: Path
) -> None:
    objects_before = list_stored_keys(stack)
    missing = str(tmp_path / "missing.csv")
    require_command_error(stack, "import.file", "import", str(list_id), missing)
    import_file.write_bytes(b"")
    require_command_error(stack, "import.empty", "import", str(list_id), str(import_file))
    import_file.write_bytes(b"Colour,Shape\nred,round\n")
    require_command_error(stack, "import.no_email_column", "import", str(list_id), str(import_file))
    mapping = ("--mapping", '{"Colour": 1}')
    require_command_error(
        stack, "import.mapping", "import", str(list_id), str(import_file), *mapping
    )
    assert list_stored_keys(stack) <= objects_before


def test_cli_exports_a_list_to_a_compressed_file(
    stack: Stack, client: httpx2.Client, mailing_list: dict[str, Any], tmp_path: Path
) -> None:
    emails = build_addresses(2)
    import_members_file(client, mailing_list["id"], build_address_file(*emails))
    target = tmp_path / "out.csv.gz"
    summary = run_json_command(stack, "export", mailing_list["slug"], "--output", str(target))
    assert (summary["file"], summary["rows"]) == (str(target), 2)
    rows = csv.DictReader(io.StringIO(gzip.decompress(target.read_bytes()).decode()))
    assert [row["email"] for row in rows] == emails


def test_cli_delivery_export_is_hidden_from_the_list_owner(
    stack: Stack, client: httpx2.Client, list_id: int, tmp_path: Path
) -> None:
    import_members_file(client, list_id, build_address_file(new_address()))
    target = tmp_path / "roster.csv.gz"
    arguments = ("export", str(list_id), "--kind", "delivery", "--output", str(target))
    summary = run_json_command(stack, *arguments)
    [row] = csv.DictReader(io.StringIO(gzip.decompress(target.read_bytes()).decode()))
    params = {"trace_id": row["trace_id"]}
    assert data(httpx2.delete(f"{stack.api_url}/subscriptions/{list_id}", params=params)) == 1
    problem(client.get(f"/jobs/{summary['job_id']}"), 403, "auth.insufficient_scope")


def test_cli_export_reports_an_unwritable_output_file(stack: Stack, list_id: int) -> None:
    arguments = ("export", str(list_id), "--output", "/nowhere/out.csv.gz")
    require_command_error(stack, "file.not_written", *arguments)
