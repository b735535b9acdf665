"""`pressroom import LIST FILE` and `pressroom export LIST`."""

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

from core.scopes import Scope
from tests.commands import fails_with, pressroom, printed
from tests.contract.bulk import addresses, counts, everybody, imported, objects, of_addresses, sheet
from tests.contract.replies import data, problem
from tests.contract.subscribers import count, known_member, new_address
from tests.stack import Owner, Stack


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "members.csv"


def test_a_file_is_imported_in_the_owners_name(
    stack: Stack, client: httpx2.Client, letter: dict[str, Any], file: Path
) -> None:
    emails = addresses(3)
    file.write_bytes(of_addresses(*emails))
    result = printed(stack, "import", letter["slug"], str(file))
    assert counts(result) == {"received": 3, "added": 3}
    assert set(everybody(client, letter["id"])) == set(emails)
    [record] = data(client.get("/imports"))["items"]
    assert (record["id"], record["filename"]) == (result["import_id"], "members.csv")
    assert data(client.get(f"/jobs/{result['job_id']}"))["status"] == "succeeded"


def test_invalid_rows_end_with_3_and_are_written_where_asked(
    stack: Stack, client: httpx2.Client, list_id: int, file: Path, tmp_path: Path
) -> None:
    file.write_bytes(of_addresses("nobody", new_address()))
    errors = tmp_path / "errors.csv"
    words = ("import", str(list_id), str(file), "--errors", str(errors), "--json")
    done = pressroom(stack, *words)
    assert (done.returncode, json.loads(done.stdout)["invalid"]) == (3, 1)
    [row] = csv.DictReader(io.StringIO(errors.read_text()))
    assert (row["Email"], row["line"], row["code"]) == ("nobody", "2", "email.invalid")
    assert count(client, list_id) == 1


def test_options_are_those_of_the_api(
    stack: Stack, client: httpx2.Client, list_id: int, file: Path
) -> None:
    email = new_address()
    imported(client, list_id, of_addresses(email))
    file.write_bytes(sheet(["Post", "Who"], [email, "Ada"], [new_address(), "Ben"]))
    mapping = ("--mapping", '{"Post": "email", "Who": "name"}')
    words = ("import", str(list_id), str(file), "--update", *mapping)
    tried = printed(stack, *words, "--dry-run")
    assert known_member(client, list_id, email)["name"] is None
    done = printed(stack, *words)
    assert counts(tried) == counts(done) == {"received": 2, "added": 1, "already": 1, "updated": 1}
    assert known_member(client, list_id, email)["name"] == "Ada"


def test_a_file_may_come_by_a_pipe(stack: Stack, client: httpx2.Client, list_id: int) -> None:
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


def test_what_cannot_be_imported_is_told_in_one_line(
    stack: Stack, list_id: int, file: Path, tmp_path: Path
) -> None:
    before = objects(stack)
    missing = str(tmp_path / "missing.csv")
    fails_with(stack, "import.file", "import", str(list_id), missing)
    file.write_bytes(b"")
    fails_with(stack, "import.empty", "import", str(list_id), str(file))
    file.write_bytes(b"Colour,Shape\nred,round\n")
    fails_with(stack, "import.no_email_column", "import", str(list_id), str(file))
    mapping = ("--mapping", '{"Colour": 1}')
    fails_with(stack, "import.mapping", "import", str(list_id), str(file), *mapping)
    assert objects(stack) <= before


def test_a_list_is_exported_to_a_file(
    stack: Stack, client: httpx2.Client, letter: dict[str, Any], tmp_path: Path
) -> None:
    emails = addresses(2)
    imported(client, letter["id"], of_addresses(*emails))
    target = tmp_path / "out.csv.gz"
    shown = printed(stack, "export", letter["slug"], "--output", str(target))
    assert (shown["file"], shown["rows"]) == (str(target), 2)
    rows = csv.DictReader(io.StringIO(gzip.decompress(target.read_bytes()).decode()))
    assert [row["email"] for row in rows] == emails


def test_the_operator_makes_a_roster_that_the_owner_does_not_see(
    *, stack: Stack, client: httpx2.Client, owner: Owner, list_id: int, tmp_path: Path
) -> None:
    imported(client, list_id, of_addresses(new_address()))
    target = tmp_path / "roster.csv.gz"
    words = ("export", str(list_id), "--kind", "delivery", "--output", str(target))
    shown = printed(stack, *words)
    [row] = csv.DictReader(io.StringIO(gzip.decompress(target.read_bytes()).decode()))
    trace = {"trace_id": row["trace_id"]}
    assert data(httpx2.delete(f"{stack.api_url}/subscriptions/{list_id}", params=trace)) == 1
    problem(client.get(f"/jobs/{shown['job_id']}"), 403, "auth.insufficient_scope")
    with stack.client(stack.new_key(owner.user_id, Scope.DELIVERY)) as sending:
        reply = sending.post(f"/lists/{list_id}/exports", json={"kind": "delivery"})
        assert data(reply)["result"]["rows"] == 0


def test_a_result_that_cannot_be_written_is_told_in_one_line(stack: Stack, list_id: int) -> None:
    words = ("export", str(list_id), "--output", "/nowhere/out.csv.gz")
    fails_with(stack, "file.not_written", *words)
