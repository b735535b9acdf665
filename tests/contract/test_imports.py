"""Imports of members and of people who said no: what becomes of their rows, and their undo."""

import json
import re
from datetime import datetime, timedelta
from typing import Any

import httpx2
import pytest

from devstack.harness.stack import Owner, Stack
from services.subscriptions.imports.chunks import ROWS_PER_CHUNK
from tests.support.http.replies import TIMESTAMP, data, problem
from tests.support.imports.bulk import (
    COUNTS,
    FINISHED,
    add,
    addresses,
    counts,
    errors,
    everybody,
    finished,
    imported,
    newest_job,
    of_addresses,
    sheet,
    upload,
)
from tests.support.lists.segments import acted
from tests.support.lists.subscribers import (
    Reader,
    count,
    known_member,
    member,
    members,
    new_address,
    new_list,
)
from tests.support.security.world import rows_about, settled
from tests.support.stack.maintenance import resting_maintenance

# The tables in which an import records its own progress.
BOOKKEEPING = {
    *("jobs", "jobs_p0", "imports", "import_chunks", "object_removals", "api_keys"),
    *("feed_events", "feed_events_p0"),
}


def test_import_returns_202_and_its_job_reports_the_counts(
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
    """Return the rows that an import of the file could change.

    Other rows are left out because webhooks of earlier tests may change them at any time.
    """
    people = re.findall(r"[\w.]+@[\w.]+", file.decode())
    owner_id = data(client.get("/users/me"))["id"]
    names = "|".join([str(owner_id), *map(re.escape, people)])
    found = rows_about(stack, names, [list_id])
    return {table: rows for table, rows in found.items() if table not in BOOKKEEPING}


@pytest.fixture
def file_with_every_verdict(client: httpx2.Client, reader: Reader, list_id: int) -> bytes:
    """An import file with at least one row for each possible verdict, such as ``duplicate``."""
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


def test_import_dry_run_changes_nothing_and_predicts_the_counts_of_the_real_import(
    stack: Stack, client: httpx2.Client, list_id: int, file_with_every_verdict: bytes
) -> None:
    with resting_maintenance(stack):
        # Wait until workers have recorded the mails and events of the people in the file.
        settled(stack)
        before = contents(stack, client, list_id, file_with_every_verdict)
        tried = imported(
            client, list_id, file_with_every_verdict, dry_run="1", on_existing="update"
        )
        assert contents(stack, client, list_id, file_with_every_verdict) == before
    assert counts(tried) == {
        "received": 10,
        "added": 4,
        "already": 1,
        "opted_out": 3,
        "invalid": 1,
        "duplicate": 1,
        "updated": 1,
    }
    done = imported(client, list_id, file_with_every_verdict, on_existing="update")
    assert counts(done) == counts(tried)
    assert contents(stack, client, list_id, file_with_every_verdict) != before
    shown = data(client.get(f"/imports/{tried['import_id']}"))
    assert (shown["dry_run"], shown["on_existing"]) == (True, "update")
    # An undo of a dry run changes nothing.
    assert data(undo(client, tried["import_id"])) == 0
    assert count(client, list_id) == 5


def test_import_changes_existing_members_only_with_on_existing_update(
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


def test_import_row_with_opt_out_status_creates_an_opt_out_and_never_a_member(
    stack: Stack, client: httpx2.Client, reader: Reader, list_id: int
) -> None:
    new = new_address()
    reader.joins(list_id)
    file = sheet(["Email", "Status"], [reader.email, "cleaned"], [new, "unsubscribed"])
    assert counts(imported(client, list_id, file)) == {"received": 2, "opted_out": 2}
    assert opt_outs(stack, list_id) == {reader.email: "bounce", new: "import"}
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


def test_import_adds_nobody_whom_a_later_row_of_the_file_opts_out(
    client: httpx2.Client, list_id: int
) -> None:
    known, new, *others = addresses(ROWS_PER_CHUNK + 2)
    imported(client, list_id, of_addresses(known))
    yes = [[each, "subscribed"] for each in (known, new, *others)]
    file = sheet(["Email", "Status"], *yes, [known, "unsubscribed"], [new, "bounced"])
    job = data(upload(client, list_id, file, prefer=None), 202)
    while job["status"] not in FINISHED:
        assert members(client, list_id, email=new) == []
        events = data(client.get("/events", params={"list_id": list_id}))["items"]
        assert all(each["type"] != "subscription.created" for each in events)
        job = data(client.get(f"/jobs/{job['id']}"))
    found = {"received": ROWS_PER_CHUNK + 4, "added": ROWS_PER_CHUNK}
    assert counts(job["result"]) == {**found, "opted_out": 2, "duplicate": 2}
    assert members(client, list_id, email=new) == []
    assert known_member(client, list_id, known)["status"] == "unsubscribed"


def test_import_activates_a_pending_member_of_a_list_that_requires_confirmation(
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
    return list(data(reply)["items"])


def test_member_history_shows_the_import_entry_in_order_on_every_page(
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


def test_imports_are_listed_newest_first_and_filtered_by_list(
    client: httpx2.Client, list_id: int
) -> None:
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
    assert all(TIMESTAMP.fullmatch(shown[name]) for name in ("created_at", "finished_at"))
    problem(client.get("/imports/999999999"), 404, "import.not_found")
    for unknown in (0, 2**63, 2**64 - 1):
        assert data(client.get("/imports", params={"list_id": unknown}))["items"] == []
    assert client.get("/imports", params={"list_id": "x"}).status_code == 400


def opt_outs(stack: Stack, list_id: int) -> dict[str, str]:
    """By address, how each opt-out of the list came."""
    rows = stack.query(
        "SELECT email, source FROM opt_outs JOIN users ON users.id = opt_outs.user_id"
        " WHERE list_id = %s AND kind = 'list'",
        list_id,
    )
    return {str(email): str(source) for email, source in rows}


def postmark(**reasons: str) -> bytes:
    return json.dumps(
        {"Suppressions": [{"EmailAddress": a, "SuppressionReason": r} for a, r in reasons.items()]}
    ).encode()


def test_suppression_import_opts_out_every_row_and_keeps_the_reason(
    stack: Stack, client: httpx2.Client, reader: Reader, list_id: int
) -> None:
    reader.joins(list_id)
    [complained, left] = addresses(2)
    file = postmark(
        **{reader.email: "HardBounce", complained: "SpamComplaint", left: "ManualSuppression"}
    )
    expected = {"received": 3, "opted_out": 3}
    assert counts(imported(client, list_id, file, kind="suppressions", dry_run="1")) == expected
    assert opt_outs(stack, list_id) == {}
    result = imported(client, list_id, file, kind="suppressions")
    assert counts(result) == expected
    found = {reader.email: "bounce", complained: "complaint", left: "import"}
    assert opt_outs(stack, list_id) == found
    assert reader.stands(list_id)[0] == "unsubscribed"
    assert member(client, list_id, complained) is None
    assert data(client.get(f"/imports/{result['import_id']}"))["kind"] == "suppressions"
    # As often as it is sent, and as what an import says of members.
    assert counts(imported(client, list_id, file, kind="bounces")) == expected
    assert opt_outs(stack, list_id) == found
    assert data(add(client, list_id, reader.email, complained, left)) == 0


def test_bounce_import_ignores_temporary_failures(
    stack: Stack, client: httpx2.Client, list_id: int
) -> None:
    [hard, soft] = addresses(2)
    assert data(add(client, list_id, hard, soft)) == 2
    file = sheet(["status", "reason", "email"], ["5.1.1", "gone", hard], ["4.2.2", "full", soft])
    result = imported(client, list_id, file, kind="bounces")
    assert counts(result) == {"received": 2, "opted_out": 1, "invalid": 1}
    assert opt_outs(stack, list_id) == {hard: "bounce"}
    assert known_member(client, list_id, soft)["status"] == "active"
    told = {each["email"]: each["code"] for each in errors(result["errors_url"])}
    assert told == {hard: "member.left", soft: "row.may_pass"}


def test_import_undo_lifts_no_opt_out(
    stack: Stack, client: httpx2.Client, reader: Reader, list_id: int
) -> None:
    reader.joins(list_id)
    file = sheet(["email"], [reader.email])
    import_id = imported(client, list_id, file, kind="complaints")["import_id"]
    assert data(client.delete(f"/imports/{import_id}/members")) == 0
    assert opt_outs(stack, list_id) == {reader.email: "complaint"}
    assert reader.stands(list_id)[0] == "unsubscribed"
    # The person themselves may.
    reader.joins(list_id)
    assert opt_outs(stack, list_id) == {}


def undo(client: httpx2.Client, import_id: int, **headers: str) -> httpx2.Response:
    return client.delete(f"/imports/{import_id}/members", headers=headers)


def test_import_undo_removes_only_members_whom_that_import_added(
    client: httpx2.Client, list_id: int
) -> None:
    before, new = addresses(2), addresses(5)
    imported(client, list_id, of_addresses(*before))
    import_id = imported(client, list_id, of_addresses(*before, *new))["import_id"]
    assert count(client, list_id) == 7
    record = data(client.get(f"/imports/{import_id}"))
    until = datetime.fromisoformat(record["undo_until"])
    assert until - datetime.fromisoformat(record["created_at"]) == timedelta(days=90)
    assert data(undo(client, import_id)) == 5
    assert data(undo(client, import_id)) == 0
    assert set(everybody(client, list_id)) == set(before)
    assert count(client, list_id) == 2
    job = newest_job(client)
    assert (job["kind"], job["status"]) == ("members.undo", "succeeded")
    assert job["result"] == {"import_id": import_id, "undone": 5, "kept": 0}
    shown = data(client.get(f"/imports/{import_id}"))
    assert (shown["undone"], shown["kept"], bool(shown["undone_at"])) == (5, 0, True)


def test_import_undo_keeps_members_who_subscribed_themselves_since(
    client: httpx2.Client, list_id: int, reader: Reader
) -> None:
    import_id = imported(client, list_id, of_addresses(reader.email, *addresses(1)))["import_id"]
    # They are on the list already, so this changes nothing that is shown.
    for _ in range(2):
        assert data(reader.client.post(f"/subscriptions/{list_id}/no-challenge")) == 0
    assert data(undo(client, import_id)) == 1
    assert set(everybody(client, list_id)) == {reader.email}
    told = data(client.get(f"/lists/{list_id}/members/{reader.user_id}/consent"))["items"]
    assert [each["how"] for each in told] == ["login", "import"]


def test_bulk_add_can_be_undone_like_an_import(client: httpx2.Client, list_id: int) -> None:
    data(add(client, list_id, *addresses(4)))
    [record] = data(client.get("/imports"))["items"]
    assert record["source"] == "members"
    assert data(undo(client, record["id"])) == 4
    assert members(client, list_id) == []


def test_import_undo_keeps_old_values_that_another_import_needs_for_its_undo(
    client: httpx2.Client, list_id: int
) -> None:
    def named(*people: tuple[str, str]) -> int:
        file = sheet(["Email", "Name"], *people)
        return int(imported(client, list_id, file, on_existing="update")["import_id"])

    one, other = addresses(2)
    named((one, "Same"), (other, "First"))
    of_one = named((one, "Later"))
    of_other = named((other, "Same"))
    named((other, "Last"))
    for import_id in (of_other, of_one):
        data(undo(client, import_id))
    assert known_member(client, list_id, one)["name"] == "Same"


def previewed(client: httpx2.Client, import_id: int) -> dict[str, Any]:
    found: dict[str, Any] = data(client.get(f"/imports/{import_id}/undo"))
    assert found.pop("is_exact")
    return found


def test_import_undo_keeps_members_of_a_later_bulk_action_until_that_is_undone(
    client: httpx2.Client, list_id: int
) -> None:
    gone, *new = addresses(6)
    # One was a member before, and is one again by the import.
    imported(client, list_id, of_addresses(gone))
    user_id = known_member(client, list_id, gone)["user_id"]
    data(client.delete(f"/subscriptions/{list_id}/members/{user_id}"))
    before = known_member(client, list_id, gone)
    import_id = imported(client, list_id, of_addresses(gone, *new))["import_id"]
    some = {"any": [{"field": "email", "is": each} for each in (gone, new[0])]}
    bulk_id = acted(client, list_id, "tag", filter=some, value="held")["bulk_id"]
    left = known_member(client, list_id, new[1])["user_id"]
    data(client.delete(f"/subscriptions/{list_id}/members/{left}"))

    holder = {"kind": "bulk_action", "id": bulk_id, "name": "tag", "members": 2}
    assert previewed(client, import_id) == {"undone": 3, "kept": 2, "left": 1, "held_by": [holder]}
    assert data(undo(client, import_id)) == 3
    assert set(everybody(client, list_id)) == {gone, new[0]}
    assert data(client.get(f"/imports/{import_id}"))["undo_until"] is not None
    assert previewed(client, import_id)["held_by"] == [holder]
    assert data(undo(client, import_id)) == 3

    data(client.delete(f"/bulk/{bulk_id}"))
    assert previewed(client, import_id) == {"undone": 2, "kept": 0, "left": 1, "held_by": []}
    assert data(undo(client, import_id)) == 5
    assert everybody(client, list_id) == {}
    assert known_member(client, list_id, gone) == before
    assert history(client, list_id, gone)[0]["action"] == "import_undone"


def test_import_undo_preview_names_a_later_import_that_keeps_a_member(
    client: httpx2.Client, list_id: int
) -> None:
    [one] = addresses(1)
    first = imported(client, list_id, of_addresses(one))["import_id"]
    file = sheet(["Email", "Name"], [one, "Ada"])
    later = imported(client, list_id, file, "later.csv", on_existing="update")["import_id"]
    holder = {"kind": "import", "id": later, "name": "later.csv", "members": 1}
    assert previewed(client, first) == {"undone": 0, "kept": 1, "left": 0, "held_by": [holder]}
    assert [data(undo(client, each)) for each in (first, later, first)] == [0, 0, 1]
    assert everybody(client, list_id) == {}
