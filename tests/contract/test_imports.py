"""Files of members: what becomes of their rows, and what is told of it."""

import re
from typing import Any

import httpx2
import pytest

from tests.contract.bulk import (
    COUNTS,
    addresses,
    counts,
    finished,
    imported,
    of_addresses,
    sheet,
    upload,
)
from tests.contract.replies import data, problem
from tests.contract.subscribers import TIMESTAMP, Reader, count, known_member, new_address, new_list
from tests.maintenance import resting_maintenance
from tests.security.world import rows_about, settled
from tests.stack import Owner, Stack

# What an import writes of itself.
BOOKKEEPING = {
    *("jobs", "jobs_p0", "imports", "import_chunks", "object_removals", "api_keys"),
    *("feed_events", "feed_events_p0"),
}


def test_a_file_is_taken_on_with_202_and_its_job_tells_the_rest(
    client: httpx2.Client, list_id: int
) -> None:
    content = of_addresses(*addresses(3))
    reply = upload(client, list_id, content, prefer=None)
    job = data(reply, 202)
    assert reply.headers["location"] == f"/jobs/{job['id']}"
    assert job["kind"] == "members.import"
    done = finished(client, job["id"])
    assert done["status"] == "succeeded"
    assert {*COUNTS, "updated", "import_id", "errors_url"} <= set(done["result"])
    assert counts(done["result"]) == {"received": 3, "added": 3}
    assert (done["progress"]["done"], done["progress"]["total"]) == (3, 3)
    assert count(client, list_id) == 3


def contents(stack: Stack, client: httpx2.Client, list_id: int, file: bytes) -> dict[str, object]:
    """The rows that the file could change: the list's, its owner's and its people's.

    Others may change at any time, such as by webhooks of the tests before.
    """
    people = re.findall(r"[\w.]+@[\w.]+", file.decode())
    owner_id = data(client.get("/users/me"))["id"]
    names = "|".join([str(owner_id), *map(re.escape, people)])
    found = rows_about(stack, names, [list_id])
    return {table: rows for table, rows in found.items() if table not in BOOKKEEPING}


@pytest.fixture
def mixed(client: httpx2.Client, reader: Reader, list_id: int) -> bytes:
    """A file with a row of every verdict."""
    reader.joins(list_id).leaves(list_id)
    active, removed, marked, *new = addresses(6)
    imported(client, list_id, of_addresses(active, removed, marked))
    user_id = known_member(client, list_id, removed)["user_id"]
    data(client.delete(f"/subscriptions/{list_id}/members/{user_id}"))
    return sheet(
        ["Email", "Name", "Tier", "Status"],
        [active, "Other Name", "gold", "subscribed"],
        [removed, "Back", "", "subscribed"],
        [marked, "", "", "unsubscribed"],
        [reader.email, "", "", "subscribed"],
        ["nobody", "", "", "subscribed"],
        *([email, "New", "silver", "subscribed"] for email in new),
        [new[0], "Again", "", "subscribed"],
        [new_address(), "", "", "bounced"],
    )


def test_a_dry_run_changes_nothing_and_counts_what_the_real_run_then_does(
    stack: Stack, client: httpx2.Client, list_id: int, mixed: bytes
) -> None:
    with resting_maintenance(stack):
        # Workers note what they mailed to the people of the file, and of their events.
        settled(stack)
        before = contents(stack, client, list_id, mixed)
        tried = imported(client, list_id, mixed, dry_run="1", on_existing="update")
        assert contents(stack, client, list_id, mixed) == before
    assert counts(tried) == {
        "received": 10,
        "added": 4,
        "already": 1,
        "opted_out": 3,
        "invalid": 1,
        "duplicate": 1,
        "updated": 1,
    }
    done = imported(client, list_id, mixed, on_existing="update")
    assert counts(done) == counts(tried)
    assert contents(stack, client, list_id, mixed) != before
    shown = data(client.get(f"/imports/{tried['import_id']}"))
    assert (shown["dry_run"], shown["on_existing"]) == (True, "update")
    assert count(client, list_id) == 5


def test_existing_members_keep_what_they_have_unless_told_otherwise(
    client: httpx2.Client, make_reader: Any, list_id: int
) -> None:
    person = make_reader().joins(list_id)
    person.wants_mail(list_id, False)
    before = known_member(client, list_id, person.email)
    file = sheet(["Email", "Name", "Tier"], [person.email, "Renamed", "gold"])
    assert counts(imported(client, list_id, file)) == {"received": 1, "already": 1}
    assert known_member(client, list_id, person.email) == before
    result = imported(client, list_id, file, on_existing="update")
    assert counts(result) == {"received": 1, "already": 1, "updated": 1}
    after = known_member(client, list_id, person.email)
    assert (after["name"], after["type"]) == ("Renamed", "gold")
    assert (after["status"], after["email_enabled"]) == ("active", False)
    again = imported(client, list_id, file, on_existing="update")
    assert counts(again) == {"received": 1, "already": 1}


def test_a_row_with_a_mark_becomes_an_opt_out_and_never_a_member(
    client: httpx2.Client, reader: Reader, list_id: int
) -> None:
    new = new_address()
    reader.joins(list_id)
    file = sheet(["Email", "Status"], [reader.email, "cleaned"], [new, "bounced"])
    assert counts(imported(client, list_id, file)) == {"received": 2, "opted_out": 2}
    assert count(client, list_id) == 0
    assert reader.stands(list_id)[0] == "unsubscribed"
    unmarked = of_addresses(reader.email, new)
    assert counts(imported(client, list_id, unmarked)) == {"received": 2, "opted_out": 2}
    path = f"/subscriptions/{list_id}/members/{reader.user_id}/email"
    reply = client.put(path, json={"enabled": True})
    problem(reply, 409, "subscription.opted_out")
    # By their own action.
    reader.joins(list_id)
    assert reader.stands(list_id) == ("active", True)


def test_a_confirmed_lists_member_who_waits_is_made_active_by_the_owner(
    client: httpx2.Client, stranger: httpx2.Client
) -> None:
    confirmed = new_list(client, confirm_required=True)["id"]
    email = new_address()
    data(stranger.post(f"/subscriptions/{confirmed}", json={"email": email}))
    assert known_member(client, confirmed, email)["status"] == "pending"
    assert counts(imported(client, confirmed, of_addresses(email)))["added"] == 1
    assert known_member(client, confirmed, email)["status"] == "active"


def history(client: httpx2.Client, list_id: int, email: str, **page: int) -> list[dict[str, Any]]:
    found = known_member(client, list_id, email)
    reply = client.get(f"/lists/{list_id}/members/{found['user_id']}/history", params=page)
    items: list[dict[str, Any]] = data(reply)["items"]
    return items


def test_the_imports_entry_has_its_place_on_the_pages_of_a_history(
    client: httpx2.Client, owner: Owner, list_id: int
) -> None:
    email = new_address()
    imported(client, list_id, of_addresses(email))
    path = f"/subscriptions/{list_id}/members/{known_member(client, list_id, email)['user_id']}"
    data(client.put(f"{path}/email", json={"enabled": False}))
    data(client.delete(path))
    imported(client, list_id, of_addresses(email))
    actions = ["imported", "removed", "email_disabled", "imported"]
    whole = history(client, list_id, email)
    assert [each["action"] for each in whole] == actions
    assert [each["id"] is None for each in whole] == [False, False, False, True]
    first = whole[-1]
    assert (first["actor"], first["actor_id"], first["via"]) == ("import", owner.user_id, "import")
    assert (first["status_before"], first["status_after"]) == (None, "active")
    assert first["email_enabled_after"] is True
    assert first["created_at"] == known_member(client, list_id, email)["created_at"]
    for limit in (1, 2, 3, 4):
        pages = [
            each
            for offset in range(0, 8, limit)
            for each in history(client, list_id, email, offset=offset, limit=limit)
        ]
        assert pages == whole


def test_imports_are_listed_newest_first_by_list(client: httpx2.Client, list_id: int) -> None:
    other = new_list(client)["id"]
    file = of_addresses(*addresses(2))
    ids = [
        imported(client, each, file, name)["import_id"]
        for each, name in ((list_id, "a.csv"), (other, "b.csv"), (list_id, "c.csv"))
    ]
    assert [each["id"] for each in data(client.get("/imports"))["items"]] == ids[::-1]
    of_list = data(client.get("/imports", params={"list_id": list_id}))["items"]
    assert [each["filename"] for each in of_list] == ["c.csv", "a.csv"]
    shown = data(client.get(f"/imports/{ids[0]}"))
    assert (shown["source"], shown["status"], shown["size"]) == ("file", "succeeded", len(file))
    assert shown["description"]["format"] == "csv"
    assert all(re.fullmatch(TIMESTAMP, shown[name]) for name in ("created_at", "finished_at"))
    problem(client.get("/imports/999999999"), 404, "import.not_found")
    for unknown in (0, 2**63, 2**64 - 1):
        assert data(client.get("/imports", params={"list_id": unknown}))["items"] == []
    assert client.get("/imports", params={"list_id": "x"}).status_code == 400
