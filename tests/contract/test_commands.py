"""The commands and settings that scripts rely on."""

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

from devstack.harness.stack import Owner, Stack
from tests.support.commands.running import ended, ended_process, fails_with, pressroom, printed
from tests.support.http.replies import TIMESTAMP, data, problem, send
from tests.support.imports.bulk import (
    addresses,
    counts,
    everybody,
    imported,
    objects,
    of_addresses,
    sheet,
)
from tests.support.lists.subscribers import count, known_member, new_address
from tests.support.people.visiting import PASSWORD


def test_cli_creates_users_and_changes_their_plan_and_lists_them(stack: Stack) -> None:
    email = "Ada.Writer+news@Example.com"
    made = printed(stack, "users", "create", email, "--name", "Ada", "--password", PASSWORD)
    assert made["email"] == email.lower()
    assert (made["name"], made["plan"]) == ("Ada", "free")
    assert 0 < made["id"] < 2**53
    assert TIMESTAMP.fullmatch(made["created_at"])
    assert printed(stack, "users", "plan", email, "paid")["plan"] == "paid"
    listed = printed(stack, "users", "list")
    assert [each["plan"] for each in listed if each["id"] == made["id"]] == ["paid"]
    assert listed == sorted(listed, key=lambda each: str(each["created_at"]), reverse=True)
    [(stored,)] = stack.query("SELECT password_hash FROM users WHERE id = %s", made["id"])
    assert str(stored).startswith("$argon2id$")
    create = ("users", "create", email.upper(), "--name", "Again", "--password", PASSWORD)
    fails_with(stack, "user.exists", *create)


@pytest.mark.parametrize(
    ("code", "words"),
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
    stack: Stack, code: str, words: list[str]
) -> None:
    fails_with(stack, code, *words)


def test_cli_process_prints_the_same_output_as_an_in_process_call(
    stack: Stack, owner: Owner
) -> None:
    for code, words in (
        (0, ("keys", "list", owner.email)),
        (1, ("jobs", "show", "999999999")),
        (2, ("users", "plan", owner.email, "gold")),
    ):
        process, done = (each(stack.environment, *words) for each in (ended_process, ended))
        assert done.returncode == process.returncode == code
        assert (done.stdout, done.stderr) == (process.stdout, process.stderr)


def test_cli_creates_and_lists_and_revokes_api_keys(
    stack: Stack, owner: Owner, stranger: httpx2.Client
) -> None:
    made = printed(stack, "keys", "create", owner.email, "--name", "all")
    assert made["scopes"] is None
    stranger.headers["X-API-Key"] = made["key"]
    assert data(stranger.get("/users/me"))["id"] == owner.user_id
    listed = printed(stack, "keys", "list", owner.email)
    assert set(listed[0]) == set(made) - {"key"}
    assert (listed[0]["id"], listed[0]["last_four"]) == (made["id"], made["key"][-4:])
    assert printed(stack, "keys", "revoke", str(made["id"])) == {"id": made["id"], "revoked": 1}
    problem(stranger.get("/users/me"), 401, "auth.invalid_credentials")
    assert printed(stack, "keys", "revoke", str(made["id"])) == {"id": made["id"], "revoked": 0}


def test_cli_creates_api_keys_with_an_expiry_and_rejects_a_past_expiry(
    stack: Stack, owner: Owner
) -> None:
    words = ("keys", "create", owner.email, "--name", "n", "--expires-at")
    assert printed(stack, *words, "2131-02-03")["expires_at"] == "2131-02-03T00:00:00.000000Z"
    made = printed(stack, *words, "2131-02-03T04:05:06")
    assert made["expires_at"] == "2131-02-03T04:05:06.000000Z"
    fails_with(stack, "api_key.expiry", *words, "2001-02-03")


def test_cli_creates_api_keys_with_restricted_scopes_including_delivery(
    stack: Stack, owner: Owner
) -> None:
    scopes = ["--scope", "delivery", "--scope", "attachment"]
    made = printed(stack, "keys", "create", owner.email, "--name", "sender", *scopes)
    assert made["scopes"] == ["attachment", "delivery"]
    with stack.client(made["key"]) as client:
        data(client.get("/attachments"))
        problem(client.get("/apikeys"), 403, "auth.restricted_credential")


def test_cli_creates_mailing_lists_with_and_without_confirmation(
    stack: Stack, owner: Owner
) -> None:
    slug = f"letter-{owner.user_id}"
    create = ("lists", "create", owner.email, "--title", "A letter", "--slug")
    made = printed(stack, *create, slug)
    assert made == {"id": made["id"], "slug": slug, "title": "A letter", "user_id": owner.user_id}
    assert 0 < made["id"] < 2**53
    open_one = printed(stack, *create, f"open-{slug}", "--no-confirm")
    for name, is_asked in ((made["slug"], True), (open_one["slug"], False)):
        assert printed(stack, "lists", "show", name)["confirm_required"] is is_asked
    fails_with(stack, "list.slug_taken", *create, slug)
    fails_with(stack, "list.slug", *create, "12345")


def test_cli_lists_and_shows_jobs_and_refuses_to_retry_succeeded_jobs(
    stack: Stack, client: httpx2.Client
) -> None:
    token = "asked-by-a-script"
    client.headers["X-Request-ID"] = token
    record = data(send(client))
    [job] = data(client.get("/jobs"))["items"]
    shown = printed(stack, "jobs", "show", str(job["id"]))
    assert (shown["kind"], shown["status"]) == ("attachment.process", "succeeded")
    assert shown["request_id"] == token
    assert shown["result"] == {"hash_id": record["hash_id"]}
    listed = printed(stack, "jobs", "list", "--status", "succeeded", "--limit", "1000")
    assert job["id"] in [each["id"] for each in listed]
    assert {each["status"] for each in listed} == {"succeeded"}
    fails_with(stack, "job.not_retryable", "jobs", "retry", str(job["id"]))


def test_cli_migrate_prints_the_revision_and_is_idempotent(stack: Stack) -> None:
    [(revision,)] = stack.query("SELECT version_num FROM alembic_version")
    assert printed(stack, "migrate") == {"revision": revision}


def test_cli_names_every_invalid_setting_and_exits_with_2(stack: Stack) -> None:
    wrong = {
        "PRESSROOM_DATABASE_URL": "mysql://root:hunter2@db/x",
        "PRESSROOM_REDIS_URL": "",
        "PRESSROOM_PUBLIC_URL": "not a url",
        "PRESSROOM_SECRET_KEYS": "k1:hunter2",
        "PRESSROOM_ENCRYPTION_KEYS": "",
        "PRESSROOM_TRUSTED_PROXIES": "10.0.0.0/8, everybody",
        "PRESSROOM_API_KEY_HEADER": "Authorization",
        "PRESSROOM_LOG_LEVEL": "loud",
    }
    # `migrate` reads few settings, and doesn't mind the others.
    read = {"serve": set(wrong), "migrate": {"PRESSROOM_DATABASE_URL", "PRESSROOM_LOG_LEVEL"}}
    for command, expected in read.items():
        done = pressroom(stack, command, **wrong)
        assert done.returncode == 2
        assert {name for name in wrong if f"{name}: " in done.stderr} == expected
        assert "hunter2" not in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize("words", [["serve"], ["worker", "--queue", "media"], ["users", "list"]])
def test_every_process_names_a_missing_setting_and_exits_with_2(
    stack: Stack, words: list[str]
) -> None:
    given = stack.environment.items()
    done = ended({name: value for name, value in given if name != "PRESSROOM_REDIS_URL"}, *words)
    assert done.returncode == 2
    assert "PRESSROOM_REDIS_URL: Field required" in done.stderr
    assert "Traceback" not in done.stderr


def test_cli_reports_an_unreachable_database_without_traceback_and_password(stack: Stack) -> None:
    url = "postgresql://nobody:hunter2@127.0.0.1:9/none"
    for words in (["users", "list"], ["migrate"]):
        done = pressroom(stack, *words, PRESSROOM_DATABASE_URL=url)
        assert done.returncode == 1
        assert "The database can't be used" in done.stderr
        assert "Traceback" not in done.stderr
        assert "hunter2" not in done.stderr


@pytest.fixture
def import_file(tmp_path: Path) -> Path:
    """The path at which a test writes a CSV file with members to import."""
    return tmp_path / "members.csv"


def test_cli_imports_a_file_as_the_owner_of_the_list(
    stack: Stack, client: httpx2.Client, mailing_list: dict[str, Any], import_file: Path
) -> None:
    emails = addresses(3)
    import_file.write_bytes(of_addresses(*emails))
    result = printed(stack, "import", mailing_list["slug"], str(import_file))
    assert counts(result) == {"received": 3, "added": 3}
    assert set(everybody(client, mailing_list["id"])) == set(emails)
    [record] = data(client.get("/imports"))["items"]
    assert (record["id"], record["filename"]) == (result["import_id"], "members.csv")
    assert data(client.get(f"/jobs/{result['job_id']}"))["status"] == "succeeded"


def test_cli_import_exits_with_3_and_writes_invalid_rows_to_the_error_file(
    stack: Stack, client: httpx2.Client, list_id: int, import_file: Path, tmp_path: Path
) -> None:
    import_file.write_bytes(of_addresses("nobody", new_address()))
    errors = tmp_path / "errors.csv"
    words = ("import", str(list_id), str(import_file), "--errors", str(errors), "--json")
    done = pressroom(stack, *words)
    assert (done.returncode, json.loads(done.stdout)["invalid"]) == (3, 1)
    [row] = csv.DictReader(io.StringIO(errors.read_text("utf-8-sig")))
    assert (row["Email"], row["line"], row["code"]) == ("nobody", "2", "email.invalid")
    assert count(client, list_id) == 1


def test_cli_import_supports_mapping_and_update_and_dry_run(
    stack: Stack, client: httpx2.Client, list_id: int, import_file: Path
) -> None:
    email = new_address()
    imported(client, list_id, of_addresses(email))
    import_file.write_bytes(sheet(["Post", "Who"], [email, "Ada"], [new_address(), "Ben"]))
    mapping = ("--mapping", '{"Post": "email", "Who": "name"}')
    words = ("import", str(list_id), str(import_file), "--update", *mapping)
    tried = printed(stack, *words, "--dry-run")
    assert known_member(client, list_id, email)["name"] is None
    done = printed(stack, *words)
    assert counts(tried) == counts(done) == {"received": 2, "added": 1, "already": 1, "updated": 1}
    assert known_member(client, list_id, email)["name"] == "Ada"


def test_cli_import_prints_its_result_in_readable_lines(
    stack: Stack, list_id: int, import_file: Path
) -> None:
    email = new_address()
    rows = ([email, "01.02.24", "Köln", "ja"], [new_address(), "gestern", "Bonn", "nein"])
    import_file.write_bytes(sheet(["E-Mail", "Angemeldet am", "Ort", "Newsletter"], *rows))
    done = pressroom(stack, "import", str(list_id), str(import_file), "--dry-run")
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert f"line 2: {email}, free, active, joined 2024-02-01" in lines
    assert "line 3: row.not_subscribed, The file says that this person is not subscribed." in lines
    assert "Ort: ignored (left out)" in lines
    assert "E-Mail: email" in lines
    assert "{" not in done.stdout
    assert max(map(len, lines)) < 200


def test_cli_import_reads_a_file_from_a_pipe(
    stack: Stack, client: httpx2.Client, list_id: int
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "cli.main", "import", str(list_id), "-"],
        env=stack.environment,
        input=of_addresses(new_address()),
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert b"added" in done.stdout
    assert count(client, list_id) == 1


def test_cli_import_reports_an_unusable_file_and_stores_nothing(
    stack: Stack, list_id: int, import_file: Path, tmp_path: Path
) -> None:
    before = objects(stack)
    missing = str(tmp_path / "missing.csv")
    fails_with(stack, "import.file", "import", str(list_id), missing)
    import_file.write_bytes(b"")
    fails_with(stack, "import.empty", "import", str(list_id), str(import_file))
    import_file.write_bytes(b"Colour,Shape\nred,round\n")
    fails_with(stack, "import.no_email_column", "import", str(list_id), str(import_file))
    mapping = ("--mapping", '{"Colour": 1}')
    fails_with(stack, "import.mapping", "import", str(list_id), str(import_file), *mapping)
    assert objects(stack) <= before


def test_cli_exports_a_list_to_a_compressed_file(
    stack: Stack, client: httpx2.Client, mailing_list: dict[str, Any], tmp_path: Path
) -> None:
    emails = addresses(2)
    imported(client, mailing_list["id"], of_addresses(*emails))
    target = tmp_path / "out.csv.gz"
    summary = printed(stack, "export", mailing_list["slug"], "--output", str(target))
    assert (summary["file"], summary["rows"]) == (str(target), 2)
    rows = csv.DictReader(io.StringIO(gzip.decompress(target.read_bytes()).decode()))
    assert [row["email"] for row in rows] == emails


def test_cli_delivery_export_is_hidden_from_the_list_owner(
    stack: Stack, client: httpx2.Client, list_id: int, tmp_path: Path
) -> None:
    imported(client, list_id, of_addresses(new_address()))
    target = tmp_path / "roster.csv.gz"
    words = ("export", str(list_id), "--kind", "delivery", "--output", str(target))
    shown = printed(stack, *words)
    [row] = csv.DictReader(io.StringIO(gzip.decompress(target.read_bytes()).decode()))
    trace = {"trace_id": row["trace_id"]}
    assert data(httpx2.delete(f"{stack.api_url}/subscriptions/{list_id}", params=trace)) == 1
    problem(client.get(f"/jobs/{shown['job_id']}"), 403, "auth.insufficient_scope")


def test_cli_export_reports_an_unwritable_output_file(stack: Stack, list_id: int) -> None:
    words = ("export", str(list_id), "--output", "/nowhere/out.csv.gz")
    fails_with(stack, "file.not_written", *words)
