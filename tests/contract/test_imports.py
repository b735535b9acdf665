"""Tests of imports of members and of opted-out people, and of their undo."""

import json
import re
from datetime import datetime, timedelta
from typing import Any

import httpx2
import pytest

from devstack.harness.stack import Owner, Stack
from services.subscriptions.imports.chunks.chunks import ROWS_PER_CHUNK
from tests.support.http.replies import TIMESTAMP, data, problem
from tests.support.imports.bulk import (
    COUNT_NAMES,
    FINISHED_STATUSES,
    active_members,
    add,
    await_job,
    build_address_file,
    build_addresses,
    build_csv,
    fetch_rejected_rows,
    import_members_file,
    newest_job,
    nonzero_counts,
    upload,
)
from tests.support.lists.segments import run_bulk_action
from tests.support.lists.subscribers import (
    Reader,
    fetch_members,
    find_member,
    new_address,
    new_list,
    read_subscriber_count,
    require_member,
    trace_for,
)
from tests.support.security.world import await_jobs, digest_rows_about
from tests.support.stack.maintenance import resting_maintenance

# The tables in which an import records its own progress.
PROGRESS_TABLES = {
    "jobs",
    "jobs_p0",
    "imports",
    "import_chunks",
    "object_removals",
    "api_keys",
    "feed_events",
    "feed_events_p0",
}


def test_import_returns_202_and_its_job_reports_the_counts(
    client: httpx2.Client, list_id: int
) -> None:
    content = build_address_file(*build_addresses(3))
    reply = upload(client, list_id, content, prefer=None)
    job = data(reply, 202)
    assert reply.headers["location"] == f"/jobs/{job['id']}"
    assert job["kind"] == "members.import"
    finished_job = await_job(client, job["id"])
    assert finished_job["status"] == "succeeded"
    assert {*COUNT_NAMES, "updated", "import_id", "errors_url"} <= set(finished_job["result"])
    assert nonzero_counts(finished_job["result"]) == {"received": 3, "added": 3}
    assert (finished_job["progress"]["done"], finished_job["progress"]["total"]) == (3, 3)
    assert read_subscriber_count(client, list_id) == 3


def read_affected_rows(
    stack: Stack, client: httpx2.Client, list_id: int, file: bytes
) -> dict[str, object]:
    """Return the rows that an import of the file could change.

    Other rows are left out because webhooks of earlier tests may change them at any time.
    """
    emails = re.findall(r"[\w.]+@[\w.]+", file.decode())
    owner_id = data(client.get("/users/me"))["id"]
    pattern = "|".join([str(owner_id), *map(re.escape, emails)])
    rows_by_table = digest_rows_about(stack, pattern, [list_id])
    return {table: rows for table, rows in rows_by_table.items() if table not in PROGRESS_TABLES}


@pytest.fixture
def file_with_every_verdict(client: httpx2.Client, reader: Reader, list_id: int) -> bytes:
    """An import file with at least one row for each possible verdict, such as ``duplicate``."""
    reader.joins(list_id).leaves(list_id)
    active_email, removed_email, opted_out_email, *new_emails = build_addresses(6)
    import_members_file(
        client, list_id, build_address_file(active_email, removed_email, opted_out_email)
    )
    user_id = require_member(client, list_id, removed_email)["user_id"]
    data(client.delete(f"/subscriptions/{list_id}/members/{user_id}"))
    return build_csv(
        ["Email", "Name", "Tier", "Status"],
        [active_email, "Other Name", "gold", "subscribed"],
        [removed_email, "Back", "", "subscribed"],
        [opted_out_email, "", "", "unsubscribed"],
        [reader.email, "", "", "subscribed"],
        ["nobody", "", "", "subscribed"],
        *([email, "New", "silver", "subscribed"] for email in new_emails),
        [new_emails[0], "Again", "", "subscribed"],
        [new_address(), "", "", "bounced"],
    )


def test_import_dry_run_changes_nothing_and_predicts_the_counts_of_the_real_import(
    stack: Stack, client: httpx2.Client, list_id: int, file_with_every_verdict: bytes
) -> None:
    with resting_maintenance(stack):
        # Wait until workers have recorded the mails and events of the people in the file.
        await_jobs(stack)
        rows_before = read_affected_rows(stack, client, list_id, file_with_every_verdict)
        preview = import_members_file(
            client, list_id, file_with_every_verdict, dry_run="1", on_existing="update"
        )
        assert read_affected_rows(stack, client, list_id, file_with_every_verdict) == rows_before
    assert nonzero_counts(preview) == {
        "received": 10,
        "added": 4,
        "already": 1,
        "opted_out": 3,
        "invalid": 1,
        "duplicate": 1,
        "updated": 1,
    }
    result = import_members_file(client, list_id, file_with_every_verdict, on_existing="update")
    assert nonzero_counts(result) == nonzero_counts(preview)
    assert read_affected_rows(stack, client, list_id, file_with_every_verdict) != rows_before
    import_record = data(client.get(f"/imports/{preview['import_id']}"))
    assert (import_record["dry_run"], import_record["on_existing"]) == (True, "update")
    # An undo of a dry run changes nothing.
    assert data(request_undo(client, preview["import_id"])) == 0
    assert read_subscriber_count(client, list_id) == 5


def test_import_changes_existing_members_only_with_on_existing_update(
    client: httpx2.Client, make_reader: Any, list_id: int
) -> None:
    reader = make_reader().joins(list_id)
    reader.wants_mail(list_id, False)
    member_before = require_member(client, list_id, reader.email)
    file = build_csv(["Email", "Name", "Tier"], [reader.email, "Renamed", "gold"])
    assert nonzero_counts(import_members_file(client, list_id, file)) == {
        "received": 1,
        "already": 1,
    }
    assert require_member(client, list_id, reader.email) == member_before
    result = import_members_file(client, list_id, file, on_existing="update")
    assert nonzero_counts(result) == {"received": 1, "already": 1, "updated": 1}
    member_after = require_member(client, list_id, reader.email)
    assert (member_after["name"], member_after["type"]) == ("Renamed", "gold")
    assert (member_after["status"], member_after["email_enabled"]) == ("active", False)
    second_result = import_members_file(client, list_id, file, on_existing="update")
    assert nonzero_counts(second_result) == {"received": 1, "already": 1}


def test_import_row_with_opt_out_status_creates_an_opt_out_and_never_a_member(
    stack: Stack, client: httpx2.Client, reader: Reader, list_id: int
) -> None:
    new_email = new_address()
    reader.joins(list_id)
    file = build_csv(["Email", "Status"], [reader.email, "cleaned"], [new_email, "unsubscribed"])
    assert nonzero_counts(import_members_file(client, list_id, file)) == {
        "received": 2,
        "opted_out": 2,
    }
    assert read_opt_outs(stack, list_id) == {reader.email: "bounce", new_email: "import"}
    assert read_subscriber_count(client, list_id) == 0
    assert reader.read_status(list_id)[0] == "unsubscribed"
    file_without_status = build_address_file(reader.email, new_email)
    assert nonzero_counts(import_members_file(client, list_id, file_without_status)) == {
        "received": 2,
        "opted_out": 2,
    }
    path = f"/subscriptions/{list_id}/members/{reader.user_id}/email"
    reply = client.put(path, json={"enabled": True})
    problem(reply, 409, "subscription.opted_out")
    # Unlike the owner, the person can undo the opt-out, by joining the list again.
    reader.joins(list_id)
    assert reader.read_status(list_id) == ("active", True)


def test_import_adds_nobody_whom_a_later_row_of_the_file_opts_out(
    client: httpx2.Client, list_id: int
) -> None:
    member_email, new_email, *other_emails = build_addresses(ROWS_PER_CHUNK + 2)
    import_members_file(client, list_id, build_address_file(member_email))
    subscribed_rows = [[each, "subscribed"] for each in (member_email, new_email, *other_emails)]
    file = build_csv(
        ["Email", "Status"],
        *subscribed_rows,
        [member_email, "unsubscribed"],
        [new_email, "bounced"],
    )
    job = data(upload(client, list_id, file, prefer=None), 202)
    while job["status"] not in FINISHED_STATUSES:
        assert fetch_members(client, list_id, email=new_email) == []
        events = data(client.get("/events", params={"list_id": list_id}))["items"]
        assert all(each["type"] != "subscription.created" for each in events)
        job = data(client.get(f"/jobs/{job['id']}"))
    expected_counts = {"received": ROWS_PER_CHUNK + 4, "added": ROWS_PER_CHUNK}
    assert nonzero_counts(job["result"]) == {**expected_counts, "opted_out": 2, "duplicate": 2}
    assert fetch_members(client, list_id, email=new_email) == []
    assert require_member(client, list_id, member_email)["status"] == "unsubscribed"


def test_import_activates_a_pending_member_of_a_list_that_requires_confirmation(
    client: httpx2.Client, stranger: httpx2.Client
) -> None:
    list_id = new_list(client, confirm_required=True)["id"]
    email = new_address()
    data(stranger.post(f"/subscriptions/{list_id}", json={"email": email}))
    assert require_member(client, list_id, email)["status"] == "pending"
    assert (
        nonzero_counts(import_members_file(client, list_id, build_address_file(email)))["added"]
        == 1
    )
    assert require_member(client, list_id, email)["status"] == "active"


def read_history(
    client: httpx2.Client, list_id: int, email: str, **page_query: int
) -> list[dict[str, Any]]:
    member_record = require_member(client, list_id, email)
    reply = client.get(
        f"/lists/{list_id}/members/{member_record['user_id']}/history", params=page_query
    )
    return list(data(reply)["items"])


def test_member_history_shows_the_import_entry_in_order_on_every_page(
    client: httpx2.Client, owner: Owner, list_id: int
) -> None:
    email = new_address()
    import_members_file(client, list_id, build_address_file(email))
    path = f"/subscriptions/{list_id}/members/{require_member(client, list_id, email)['user_id']}"
    data(client.put(f"{path}/email", json={"enabled": False}))
    data(client.delete(path))
    import_members_file(client, list_id, build_address_file(email))
    actions = ["imported", "removed", "email_disabled", "imported"]
    entries = read_history(client, list_id, email)
    assert [each["action"] for each in entries] == actions
    assert [each["id"] is None for each in entries] == [False, False, False, True]
    entry = entries[-1]
    assert (entry["actor"], entry["actor_id"], entry["via"]) == ("import", owner.user_id, "import")
    assert (entry["status_before"], entry["status_after"]) == (None, "active")
    assert entry["email_enabled_after"] is True
    assert entry["created_at"] == require_member(client, list_id, email)["created_at"]
    for limit in (1, 2, 3, 4):
        paged_entries = [
            each
            for offset in range(0, 8, limit)
            for each in read_history(client, list_id, email, offset=offset, limit=limit)
        ]
        assert paged_entries == entries


def test_imports_are_listed_newest_first_and_filtered_by_list(
    client: httpx2.Client, list_id: int
) -> None:
    other_list_id = new_list(client)["id"]
    file = build_address_file(*build_addresses(2))
    import_ids = [
        import_members_file(client, each, file, name)["import_id"]
        for each, name in ((list_id, "a.csv"), (other_list_id, "b.csv"), (list_id, "c.csv"))
    ]
    assert [each["id"] for each in data(client.get("/imports"))["items"]] == import_ids[::-1]
    imports_of_list = data(client.get("/imports", params={"list_id": list_id}))["items"]
    assert [each["filename"] for each in imports_of_list] == ["c.csv", "a.csv"]
    record = data(client.get(f"/imports/{import_ids[0]}"))
    assert (record["source"], record["status"], record["size"]) == ("file", "succeeded", len(file))
    assert record["description"]["format"] == "csv"
    assert all(TIMESTAMP.fullmatch(record[name]) for name in ("created_at", "finished_at"))
    problem(client.get("/imports/999999999"), 404, "import.not_found")
    for unknown_list_id in (0, 2**63, 2**64 - 1):
        assert data(client.get("/imports", params={"list_id": unknown_list_id}))["items"] == []
    assert client.get("/imports", params={"list_id": "x"}).status_code == 400


def read_opt_outs(stack: Stack, list_id: int) -> dict[str, str]:
    """Map the address of each person who opted out of the list to the source of the opt-out."""
    rows = stack.query(
        "SELECT email, source FROM opt_outs JOIN users ON users.id = opt_outs.user_id"
        " WHERE list_id = %s AND kind = 'list'",
        list_id,
    )
    return {str(email): str(source) for email, source in rows}


def build_suppression_file(**reasons: str) -> bytes:
    """Build a suppression file in Postmark's format, from a map of addresses to reasons."""
    return json.dumps(
        {
            "Suppressions": [
                {"EmailAddress": email, "SuppressionReason": reason}
                for email, reason in reasons.items()
            ]
        }
    ).encode()


def test_suppression_import_opts_out_every_row_and_keeps_the_reason(
    stack: Stack, client: httpx2.Client, reader: Reader, list_id: int
) -> None:
    reader.joins(list_id)
    [complaint_email, manual_email] = build_addresses(2)
    file = build_suppression_file(
        **{
            reader.email: "HardBounce",
            complaint_email: "SpamComplaint",
            manual_email: "ManualSuppression",
        }
    )
    expected = {"received": 3, "opted_out": 3}
    assert (
        nonzero_counts(import_members_file(client, list_id, file, kind="suppressions", dry_run="1"))
        == expected
    )
    assert read_opt_outs(stack, list_id) == {}
    result = import_members_file(client, list_id, file, kind="suppressions")
    assert nonzero_counts(result) == expected
    sources = {reader.email: "bounce", complaint_email: "complaint", manual_email: "import"}
    assert read_opt_outs(stack, list_id) == sources
    assert reader.read_status(list_id)[0] == "unsubscribed"
    assert find_member(client, list_id, complaint_email) is None
    assert data(client.get(f"/imports/{result['import_id']}"))["kind"] == "suppressions"
    # Importing the file again, but as a file of bounces, doesn't change the stored opt-outs.
    assert nonzero_counts(import_members_file(client, list_id, file, kind="bounces")) == expected
    assert read_opt_outs(stack, list_id) == sources
    assert data(add(client, list_id, reader.email, complaint_email, manual_email)) == 0


def test_bounce_import_ignores_temporary_failures(
    stack: Stack, client: httpx2.Client, list_id: int
) -> None:
    [hard_email, soft_email] = build_addresses(2)
    assert data(add(client, list_id, hard_email, soft_email)) == 2
    file = build_csv(
        ["status", "reason", "email"], ["5.1.1", "gone", hard_email], ["4.2.2", "full", soft_email]
    )
    result = import_members_file(client, list_id, file, kind="bounces")
    assert nonzero_counts(result) == {"received": 2, "opted_out": 1, "invalid": 1}
    assert read_opt_outs(stack, list_id) == {hard_email: "bounce"}
    assert require_member(client, list_id, soft_email)["status"] == "active"
    codes_by_email = {
        each["email"]: each["code"] for each in fetch_rejected_rows(result["errors_url"])
    }
    assert codes_by_email == {hard_email: "member.left", soft_email: "row.may_pass"}


def test_import_undo_lifts_no_opt_out(
    stack: Stack, client: httpx2.Client, reader: Reader, list_id: int
) -> None:
    reader.joins(list_id)
    file = build_csv(["email"], [reader.email])
    import_id = import_members_file(client, list_id, file, kind="complaints")["import_id"]
    assert data(client.delete(f"/imports/{import_id}/members")) == 0
    assert read_opt_outs(stack, list_id) == {reader.email: "complaint"}
    assert reader.read_status(list_id)[0] == "unsubscribed"
    # Only the person who opted out can cancel the opt-out.
    reader.joins(list_id)
    assert read_opt_outs(stack, list_id) == {}


def request_undo(client: httpx2.Client, import_id: int, **headers: str) -> httpx2.Response:
    return client.delete(f"/imports/{import_id}/members", headers=headers)


def test_import_undo_removes_only_members_whom_that_import_added(
    client: httpx2.Client, list_id: int
) -> None:
    earlier_emails, new_emails = build_addresses(2), build_addresses(5)
    import_members_file(client, list_id, build_address_file(*earlier_emails))
    import_id = import_members_file(
        client, list_id, build_address_file(*earlier_emails, *new_emails)
    )["import_id"]
    assert read_subscriber_count(client, list_id) == 7
    record = data(client.get(f"/imports/{import_id}"))
    undo_until = datetime.fromisoformat(record["undo_until"])
    assert undo_until - datetime.fromisoformat(record["created_at"]) == timedelta(days=90)
    assert data(request_undo(client, import_id)) == 5
    assert data(request_undo(client, import_id)) == 0
    assert set(active_members(client, list_id)) == set(earlier_emails)
    assert read_subscriber_count(client, list_id) == 2
    job = newest_job(client)
    assert (job["kind"], job["status"]) == ("members.undo", "succeeded")
    assert job["result"] == {"import_id": import_id, "undone": 5, "kept": 0}
    record = data(client.get(f"/imports/{import_id}"))
    assert (record["undone"], record["kept"], bool(record["undone_at"])) == (5, 0, True)


def test_import_undo_keeps_members_who_subscribed_themselves_since(
    client: httpx2.Client, list_id: int, reader: Reader
) -> None:
    import_id = import_members_file(
        client, list_id, build_address_file(reader.email, *build_addresses(1))
    )["import_id"]
    # The import has already added the person to the list, so the person's own subscription changes
    # nothing that API responses show.
    for _ in range(2):
        assert data(reader.client.post(f"/subscriptions/{list_id}/no-challenge")) == 0
    assert data(request_undo(client, import_id)) == 1
    assert set(active_members(client, list_id)) == {reader.email}
    consents = data(client.get(f"/lists/{list_id}/members/{reader.user_id}/consent"))["items"]
    assert [each["how"] for each in consents] == ["login", "import"]


def test_bulk_add_can_be_undone_like_an_import(client: httpx2.Client, list_id: int) -> None:
    data(add(client, list_id, *build_addresses(4)))
    [record] = data(client.get("/imports"))["items"]
    assert record["source"] == "members"
    assert data(request_undo(client, record["id"])) == 4
    assert fetch_members(client, list_id) == []


def test_import_undo_keeps_old_values_that_another_import_needs_for_its_undo(
    client: httpx2.Client, list_id: int
) -> None:
    def import_names(*rows: tuple[str, str]) -> int:
        file = build_csv(["Email", "Name"], *rows)
        return int(import_members_file(client, list_id, file, on_existing="update")["import_id"])

    first_email, second_email = build_addresses(2)
    import_names((first_email, "Same"), (second_email, "First"))
    first_import_id = import_names((first_email, "Later"))
    second_import_id = import_names((second_email, "Same"))
    import_names((second_email, "Last"))
    for import_id in (second_import_id, first_import_id):
        data(request_undo(client, import_id))
    assert require_member(client, list_id, first_email)["name"] == "Same"


def preview_undo(client: httpx2.Client, import_id: int) -> dict[str, Any]:
    preview: dict[str, Any] = data(client.get(f"/imports/{import_id}/undo"))
    assert preview.pop("is_exact")
    return preview


def test_import_undo_keeps_members_of_a_later_bulk_action_until_that_is_undone(
    client: httpx2.Client, list_id: int
) -> None:
    removed_email, *new_emails = build_addresses(6)
    # The owner removed the first person, and the import makes them a member again.
    import_members_file(client, list_id, build_address_file(removed_email))
    user_id = require_member(client, list_id, removed_email)["user_id"]
    data(client.delete(f"/subscriptions/{list_id}/members/{user_id}"))
    member_before = require_member(client, list_id, removed_email)
    import_id = import_members_file(
        client, list_id, build_address_file(removed_email, *new_emails)
    )["import_id"]
    held_members = {
        "any": [{"field": "email", "is": each} for each in (removed_email, new_emails[0])]
    }
    bulk_id = run_bulk_action(client, list_id, "tag", filter=held_members, value="held")["bulk_id"]
    left_user_id = require_member(client, list_id, new_emails[1])["user_id"]
    data(client.delete(f"/subscriptions/{list_id}/members/{left_user_id}"))

    holder = {"kind": "bulk_action", "id": bulk_id, "name": "tag", "members": 2}
    assert preview_undo(client, import_id) == {
        "undone": 3,
        "kept": 2,
        "left": 1,
        "held_by": [holder],
    }
    assert data(request_undo(client, import_id)) == 3
    assert set(active_members(client, list_id)) == {removed_email, new_emails[0]}
    assert data(client.get(f"/imports/{import_id}"))["undo_until"] is not None
    assert preview_undo(client, import_id)["held_by"] == [holder]
    assert data(request_undo(client, import_id)) == 3

    data(client.delete(f"/bulk/{bulk_id}"))
    assert preview_undo(client, import_id) == {"undone": 2, "kept": 0, "left": 1, "held_by": []}
    assert data(request_undo(client, import_id)) == 5
    assert active_members(client, list_id) == {}
    assert require_member(client, list_id, removed_email) == member_before
    assert read_history(client, list_id, removed_email)[0]["action"] == "import_undone"


def test_import_counts_after_its_undo_as_the_preview_did(
    client: httpx2.Client, stranger: httpx2.Client, stack: Stack, list_id: int
) -> None:
    removed_email, *emails = build_addresses(8)
    import_members_file(client, list_id, build_address_file(removed_email))
    removed_id = require_member(client, list_id, removed_email)["user_id"]
    data(client.delete(f"/subscriptions/{list_id}/members/{removed_id}"))
    file = build_address_file(removed_email, *emails)
    import_id = import_members_file(client, list_id, file)["import_id"]
    # One member is edited. Three people leave: the member whom the import added again, one whom
    # the owner removes, and one who opts out.
    user_ids = [require_member(client, list_id, each)["user_id"] for each in emails[:3]]
    data(client.patch(f"/lists/{list_id}/members/{user_ids[0]}", json={"name": "Ada"}))
    for user_id in (removed_id, user_ids[1]):
        data(client.delete(f"/subscriptions/{list_id}/members/{user_id}"))
    trace_params = {"trace_id": trace_for(stack, list_id, user_ids[2])}
    data(stranger.delete(f"/subscriptions/{list_id}", params=trace_params))
    preview = preview_undo(client, import_id)
    counts = {name: preview[name] for name in ("undone", "kept", "left")}
    assert counts == {"undone": 4, "kept": 1, "left": 3}
    for _ in range(2):
        assert data(request_undo(client, import_id)) == 4
        record = data(client.get(f"/imports/{import_id}"))
        assert {name: record[name] for name in counts} == counts
        assert record["undo_until"] is not None


def test_import_undo_preview_names_a_later_import_that_keeps_a_member(
    client: httpx2.Client, list_id: int
) -> None:
    [email] = build_addresses(1)
    first_import_id = import_members_file(client, list_id, build_address_file(email))["import_id"]
    file = build_csv(["Email", "Name"], [email, "Ada"])
    later_result = import_members_file(client, list_id, file, "later.csv", on_existing="update")
    later_import_id = later_result["import_id"]
    holder = {"kind": "import", "id": later_import_id, "name": "later.csv", "members": 1}
    assert preview_undo(client, first_import_id) == {
        "undone": 0,
        "kept": 1,
        "left": 0,
        "held_by": [holder],
    }
    import_ids = (first_import_id, later_import_id, first_import_id)
    assert [data(request_undo(client, each)) for each in import_ids] == [0, 0, 1]
    assert active_members(client, list_id) == {}
