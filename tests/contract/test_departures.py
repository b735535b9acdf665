"""Tests that owners see why members left: in statistics, history, filters and exports."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import httpx2
import pytest

from core.ids import PersonId
from devstack.harness.polling import eventually
from devstack.harness.stack import Stack
from services.subscriptions.members import locks
from services.subscriptions.members.traces import Trace, create_trace_id
from tests.support.http.replies import data, problem
from tests.support.imports.bulk import (
    add,
    await_job,
    build_address_file,
    export_rows,
    import_members_file,
)
from tests.support.lists.subscribers import Reader, new_address, new_list, require_member
from tests.support.people.erasure import erase
from tests.support.senders.mailings import new_mailing
from tests.support.senders.own_senders import new_sender
from tests.support.senders.posting import bounce, deliver, delivery_for, report

STORED_CAUSES = "SELECT user_id, reason, mailing_id FROM opt_outs WHERE list_id = %s"


def read_reasons(client: httpx2.Client, list_id: int) -> dict[str, dict[str, Any]]:
    rows = data(client.get(f"/lists/{list_id}/stats", params={"by": "reason"}))["rows"]
    return {row.pop("key"): row for row in rows}


def leave_by_page(
    stack: Stack, stranger: httpx2.Client, list_id: int, reader: Reader, **choice: object
) -> None:
    mailing_id = int(str(choice.pop("mailing_id", 0)))
    trace = Trace(list_id, PersonId(reader.user_id), mailing_id)
    trace_id = create_trace_id(stack.resources.keyring, trace)
    form = {"action": "leave", **choice}
    reply = stranger.post("/unsubscribe", params={"trace_id": trace_id}, data=form)
    assert reply.status_code == 303


def search(client: httpx2.Client, list_id: int, **condition: object) -> set[int]:
    body = {"filter": condition, "limit": 100}
    found = data(client.post(f"/lists/{list_id}/members/search", json=body))["items"]
    return {member["user_id"] for member in found}


def read_history(client: httpx2.Client, list_id: int, user_id: int) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = data(client.get(f"/lists/{list_id}/members/{user_id}/history"))[
        "items"
    ]
    return items


@pytest.fixture
def departed(
    stack: Stack,
    client: httpx2.Client,
    stranger: httpx2.Client,
    make_reader: Callable[[], Reader],
    list_id: int,
) -> dict[str, Reader]:
    """Members who left in each possible way, by the reason or the stated reason."""
    words = "unsubscribed too_many other complained bounced removed erased transferred stays"
    readers = {word: make_reader().joins(list_id) for word in words.split()}
    readers["unsubscribed"].leaves(list_id)
    for word in ("too_many", "other"):
        leave_by_page(stack, stranger, list_id, readers[word], reason=word)
    delivery_ids = {
        word: delivery_for(stack, list_id, readers[word].user_id)
        for word in ("complained", "bounced")
    }
    deliver(
        stack,
        client,
        new_sender(client),
        report("complained", delivery_id=delivery_ids["complained"]),
        bounce("hard", "5.1.1", delivery_id=delivery_ids["bounced"]),
    )
    members_path = f"/subscriptions/{list_id}/members"
    assert data(client.delete(f"{members_path}/{readers['removed'].user_id}")) == 1
    target = {"dst_list_id": new_list(client)["id"]}
    path = f"{members_path}/{readers['transferred'].user_id}/transfer"
    assert data(client.post(path, params=target)) == 1
    erase(stack.resources, readers["erased"].email)
    eventually(
        lambda: readers["complained"].read_status(list_id)[0] == "unsubscribed", what="the opt-out"
    )
    return readers


def test_statistics_by_reason_count_why_members_left(
    client: httpx2.Client, departed: dict[str, Reader], list_id: int
) -> None:
    assert departed
    rows = read_reasons(client, list_id)
    assert {key: row["left"] for key, row in rows.items()} == {
        "unsubscribed": 3,
        "complained": 1,
        "bounced": 1,
        "removed": 1,
        "erased": 1,
        "transferred": 1,
    }
    assert rows["unsubscribed"]["stated"] == {"too_many": 1, "other": 1}
    assert {row["stated"] for key, row in rows.items() if key != "unsubscribed"} == {None}
    assert {row["joined"] for row in rows.values()} == {0}
    # A member whose mail bounced stays on the list.
    left_by_day = data(client.get(f"/lists/{list_id}/stats"))["rows"][-1]["left"]
    assert sum(row["left"] for row in rows.values()) == left_by_day + rows["bounced"]["left"]


def test_statistics_by_reason_cover_only_the_chosen_days(
    stack: Stack, client: httpx2.Client, departed: dict[str, Reader], list_id: int
) -> None:
    assert departed
    stack.query(
        "UPDATE subscription_events SET created_at = '2026-02-28T23:59:59.999999Z'"
        " WHERE list_id = %s AND action = 'removed'",
        list_id,
    )
    period = {"by": "reason", "from": "2026-02-28", "to": "2026-02-28"}
    [row] = data(client.get(f"/lists/{list_id}/stats", params=period))["rows"]
    assert (row["key"], row["left"], row["net"]) == ("removed", 1, -1)
    period |= {"from": "2026-03-01", "to": "2026-03-01"}
    assert data(client.get(f"/lists/{list_id}/stats", params=period))["rows"] == []
    assert "removed" not in read_reasons(client, list_id)


def test_imported_bounces_and_complaints_count_under_their_own_reason(
    client: httpx2.Client, list_id: int
) -> None:
    bounced, complained, unsubscribed = (new_address() for _ in range(3))
    data(add(client, list_id, bounced, complained, unsubscribed))
    for kind, email in (
        ("bounces", bounced),
        ("complaints", complained),
        ("suppressions", unsubscribed),
    ):
        import_members_file(client, list_id, build_address_file(email), kind=kind)
    assert {key: row["left"] for key, row in read_reasons(client, list_id).items()} == {
        "unsubscribed": 1,
        "complained": 1,
        "bounced": 1,
    }


def test_migration_tells_imported_bounces_of_earlier_releases_from_other_opt_outs(
    stack: Stack, client: httpx2.Client, list_id: int
) -> None:
    bounced, unsubscribed = (new_address() for _ in range(2))
    data(add(client, list_id, bounced, unsubscribed))
    for kind, email in (("bounces", bounced), ("suppressions", unsubscribed)):
        import_members_file(client, list_id, build_address_file(email), kind=kind)
    # Releases up to 1.1.0 stored this action for all imported opt-outs.
    stack.query(
        "UPDATE subscription_events SET action = 'unsubscribed' WHERE list_id = %s", list_id
    )
    migration = import_module("storage.migrations.versions.0137_departure_indexes")
    stack.query(migration.SET_ACTIONS)
    rows = read_reasons(client, list_id)
    assert {key: row["left"] for key, row in rows.items()} == {"unsubscribed": 1, "bounced": 1}


def test_history_keeps_the_reason_stated_while_a_bulk_action_locks_the_list(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, reader: Reader, list_id: int
) -> None:
    reader.joins(list_id)
    mailing_id = new_mailing(stack, list_id, rows=1)
    with stack.resources.unit_of_work() as uow:
        locks.lock_list(uow, list_id)
        leave_by_page(stack, stranger, list_id, reader, reason="too_many", mailing_id=mailing_id)
        assert len(read_history(client, list_id, reader.user_id)) == 1
    eventually(lambda: len(read_history(client, list_id, reader.user_id)) == 2, what="the opt-out")
    entry = read_history(client, list_id, reader.user_id)[0]
    assert (entry["reason"], entry["mailing_id"]) == ("too_many", mailing_id)
    assert read_reasons(client, list_id)["unsubscribed"]["stated"] == {"too_many": 1}
    erase(stack.resources, reader.email)
    assert stack.query(STORED_CAUSES, list_id) == [(None, None, None)]


def test_erasure_by_the_former_release_deletes_the_cause_of_an_opt_out(
    stack: Stack, stranger: httpx2.Client, reader: Reader, list_id: int
) -> None:
    reader.joins(list_id)
    mailing_id = new_mailing(stack, list_id, rows=1)
    with stack.resources.unit_of_work() as uow:
        locks.lock_list(uow, list_id)
        leave_by_page(stack, stranger, list_id, reader, reason="too_many", mailing_id=mailing_id)
        assert stack.query(STORED_CAUSES, list_id) == [(reader.user_id, "too_many", mailing_id)]
        # Release 1.1.0 runs this statement.
        stack.query("UPDATE opt_outs SET user_id = NULL WHERE user_id = %s", reader.user_id)
    assert stack.query(STORED_CAUSES, list_id) == [(None, None, None)]


def test_sign_up_form_keeps_the_reason_stated_while_a_bulk_action_locked_the_list(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, reader: Reader, list_id: int
) -> None:
    """A sign-up can follow the opt-out before the job that updates the member."""
    reader.joins(list_id)
    data(client.patch(f"/lists/{list_id}", json={"confirm_required": True}))
    with stack.resources.unit_of_work() as uow:
        locks.lock_list(uow, list_id)
        leave_by_page(stack, stranger, list_id, reader, reason="too_many")
        stack.query("DELETE FROM jobs WHERE kind = 'opt_out.follow' AND finished_at IS NULL")
    data(stranger.post(f"/subscriptions/{list_id}", json={"email": reader.email}))
    entries = read_history(client, list_id, reader.user_id)
    assert [each["reason"] for each in entries if each["action"] == "unsubscribed"] == ["too_many"]


def test_unconfirmed_sign_ups_and_undone_imports_have_no_reason(
    client: httpx2.Client, make_reader: Callable[[], Reader]
) -> None:
    list_id = new_list(client, confirm_required=True)["id"]
    imported = import_members_file(client, list_id, build_address_file(new_address()))
    assert data(client.delete(f"/imports/{imported['import_id']}/members")) == 1
    make_reader().leaves(list_id)
    assert read_reasons(client, list_id) == {}


def test_history_shows_why_a_member_left(
    client: httpx2.Client, departed: dict[str, Reader], list_id: int
) -> None:
    left_reasons = {"too_many": "unsubscribed", "other": "unsubscribed", "stays": None}
    for word, reader in departed.items():
        entry = read_history(client, list_id, reader.user_id)[0]
        assert entry["left_reason"] == left_reasons.get(word, word), word
        assert entry["reason"] == (word if word in ("too_many", "other") else None)


def test_filter_finds_members_by_why_they_left(
    client: httpx2.Client, departed: dict[str, Reader], list_id: int
) -> None:
    ids = {word: reader.user_id for word, reader in departed.items()}
    unsubscribed = {ids["unsubscribed"], ids["too_many"], ids["other"]}
    for word, expected in {
        "unsubscribed": unsubscribed,
        "too_many": {ids["too_many"]},
        **{
            word: {ids[word]}
            for word in ("complained", "bounced", "removed", "erased", "transferred")
        },
    }.items():
        assert search(client, list_id, field="left_reason", **{"is": word}) == expected, word
    either = {"field": "left_reason", "in": ["complained", "other"]}
    assert search(client, list_id, **either) == {ids["complained"], ids["other"]}
    assert search(client, list_id, field="left_reason", exists=False) == {ids["stays"]}
    everyone = set(ids.values())
    others = search(client, list_id, field="left_reason", is_not="too_many")
    assert others == everyone - {ids["too_many"]}


def test_returned_member_has_no_left_reason(
    client: httpx2.Client, reader: Reader, list_id: int
) -> None:
    reader.joins(list_id).leaves(list_id)
    condition = {"field": "left_reason", "is": "unsubscribed"}
    assert search(client, list_id, **condition) == {reader.user_id}
    reader.joins(list_id)
    assert search(client, list_id, **condition) == set()
    reader.leaves(list_id)
    assert read_reasons(client, list_id)["unsubscribed"]["left"] == 2
    assert search(client, list_id, **condition) == {reader.user_id}


def test_invalid_left_reason_names_the_allowed_reasons(client: httpx2.Client, list_id: int) -> None:
    body = {"filter": {"field": "left_reason", "is": "bored"}}
    reply = client.post(f"/lists/{list_id}/members/search", json=body)
    [error] = problem(reply, 400, "filter.invalid")["errors"]
    assert error["field"] == "filter.is"
    assert "unsubscribed" in error["message"]
    assert "too_many" in error["message"]


def test_segment_and_bulk_action_use_the_left_reason(
    client: httpx2.Client, departed: dict[str, Reader], list_id: int
) -> None:
    condition = {"field": "left_reason", "is": "too_many"}
    segment = data(
        client.post(f"/lists/{list_id}/segments", json={"name": "Annoyed", "filter": condition})
    )
    assert data(client.get(f"/lists/{list_id}/segments/{segment['id']}"))["count"] == 1
    body = {"segment_id": segment["id"], "action": "tag", "value": "ask again"}
    job_id = data(client.post(f"/lists/{list_id}/members/bulk", json=body), 202)["id"]
    assert await_job(client, job_id)["result"]["changed"] == 1
    path = f"/lists/{list_id}/members/{departed['too_many'].user_id}"
    assert data(client.get(path))["tags"] == ["ask again"]


def test_export_contains_why_members_left(
    client: httpx2.Client, departed: dict[str, Reader], list_id: int
) -> None:
    rows = {row["email"]: row for row in export_rows(client, list_id)}
    reasons = {
        word: (rows[reader.email]["left_reason"], rows[reader.email]["stated_reason"])
        for word, reader in departed.items()
        if reader.email in rows
    }
    assert reasons == {
        "unsubscribed": ("unsubscribed", ""),
        "too_many": ("unsubscribed", "too_many"),
        "other": ("unsubscribed", "other"),
        "complained": ("complained", ""),
        "bounced": ("bounced", ""),
        "stays": ("", ""),
    }


def test_history_and_filters_name_the_mailing_because_of_which_members_left(
    stack: Stack,
    client: httpx2.Client,
    stranger: httpx2.Client,
    make_reader: Callable[[], Reader],
    list_id: int,
) -> None:
    mailing_id = new_mailing(stack, list_id, rows=6)
    other_mailing_id = new_mailing(stack, list_id, rows=6)
    readers = [make_reader().joins(list_id) for _ in range(6)]
    left, reported, complained, hard, delivered_later, stays = readers
    leave_by_page(stack, stranger, list_id, left, mailing_id=mailing_id)
    deliver(
        stack,
        client,
        new_sender(client),
        *(
            report(kind, delivery_id=delivery_for(stack, list_id, reader.user_id, mailing_id))
            for kind, reader in (("unsubscribed", reported), ("complained", complained))
        ),
        bounce("hard", delivery_id=delivery_for(stack, list_id, hard.user_id, mailing_id)),
        bounce(
            "soft",
            "4.2.2",
            delivery_id=delivery_for(stack, list_id, delivered_later.user_id, mailing_id),
        ),
        report(
            "delivered",
            delivery_id=delivery_for(stack, list_id, delivered_later.user_id, mailing_id),
        ),
    )
    eventually(
        lambda: (
            {each.read_status(list_id)[0] for each in (left, reported, complained)}
            == {"unsubscribed"}
        ),
        what="the opt-outs",
    )
    for reader in (left, reported, complained):
        assert read_history(client, list_id, reader.user_id)[0]["mailing_id"] == mailing_id
    for name, expected in (
        ("left_mailing", {left.user_id, reported.user_id}),
        ("complained_mailing", {complained.user_id}),
        ("bounced_mailing", {hard.user_id}),
    ):
        assert search(client, list_id, field=name, **{"is": mailing_id}) == expected, name
        assert search(client, list_id, field=name, **{"is": other_mailing_id}) == set(), name
        others = search(client, list_id, field=name, is_not=mailing_id)
        assert others == {each.user_id for each in readers} - expected
        assert stays.user_id in others
    mailing = data(client.get(f"/lists/{list_id}/mailings/{mailing_id}"))
    assert (mailing["left"], mailing["complained"], mailing["hard_bounced"]) == (2, 1, 1)
    [_, listed_mailing] = data(client.get(f"/lists/{list_id}/mailings"))["items"]
    assert listed_mailing["left"] == 2
    # Bulk actions also reach the people who left.
    body = {
        "filter": {"field": "left_mailing", "is": mailing_id},
        "action": "tag",
        "value": "September",
    }
    job_id = data(client.post(f"/lists/{list_id}/members/bulk", json=body), 202)["id"]
    assert await_job(client, job_id)["result"]["changed"] == 2


def test_one_click_in_a_mail_client_counts_as_left_by_the_mailing(
    stack: Stack,
    client: httpx2.Client,
    stranger: httpx2.Client,
    make_reader: Callable[[], Reader],
    list_id: int,
) -> None:
    mailing_id = new_mailing(stack, list_id, rows=2)
    one_click, twice = readers = [make_reader().joins(list_id) for _ in range(2)]
    for reader in readers:
        trace = Trace(list_id, PersonId(reader.user_id), mailing_id)
        reply = stranger.post(
            "/unsubscribe",
            params={"trace_id": create_trace_id(stack.resources.keyring, trace)},
            data={"List-Unsubscribe": "One-Click"},
        )
        assert reply.status_code == 200
    leave_by_page(stack, stranger, list_id, twice, mailing_id=mailing_id)
    [entry, *_] = read_history(client, list_id, one_click.user_id)
    assert (entry["action"], entry["via"]) == ("email_disabled", "one-click")
    assert entry["mailing_id"] == mailing_id
    assert data(client.get(f"/lists/{list_id}/mailings/{mailing_id}"))["left"] == 2
    people = search(client, list_id, field="left_mailing", **{"is": mailing_id})
    assert people == {one_click.user_id, twice.user_id}


def test_one_click_while_a_bulk_action_locks_the_list_counts_for_its_mailing(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, reader: Reader, list_id: int
) -> None:
    reader.joins(list_id)
    mailing_id = new_mailing(stack, list_id, rows=1)
    trace = Trace(list_id, PersonId(reader.user_id), mailing_id)
    with stack.resources.unit_of_work() as uow:
        locks.lock_list(uow, list_id)
        reply = stranger.post(
            "/unsubscribe",
            params={"trace_id": create_trace_id(stack.resources.keyring, trace)},
            data={"List-Unsubscribe": "One-Click"},
        )
        assert reply.status_code == 200
    path = f"/lists/{list_id}/mailings/{mailing_id}"
    eventually(lambda: data(client.get(path))["left"] == 1, what="the opt-out")


def test_mail_that_is_no_mailing_of_the_list_is_not_stored(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, reader: Reader, list_id: int
) -> None:
    reader.joins(list_id)
    mailing_id = new_mailing(stack, new_list(client)["id"], rows=1)
    leave_by_page(stack, stranger, list_id, reader, mailing_id=mailing_id)
    entry = read_history(client, list_id, reader.user_id)[0]
    assert (entry["action"], entry["mailing_id"]) == ("unsubscribed", None)


def test_left_reason_of_a_member_with_mail_off_depends_on_who_turned_it_off(
    stack: Stack, client: httpx2.Client, reader: Reader, list_id: int
) -> None:
    reader.joins(list_id)
    sender = new_sender(client)
    delivery_id = delivery_for(stack, list_id, reader.user_id)
    deliver(stack, client, sender, bounce("hard", delivery_id=delivery_id))
    condition = {"field": "left_reason", "is": "bounced"}
    assert search(client, list_id, **condition) == {reader.user_id}
    reader.wants_mail(list_id, True)
    assert search(client, list_id, **condition) == set()
    reader.wants_mail(list_id, False)
    assert search(client, list_id, **condition) == set()
    assert require_member(client, list_id, reader.email)["status"] == "active"


def test_erasure_deletes_the_mailing_from_the_history(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, reader: Reader, list_id: int
) -> None:
    reader.joins(list_id)
    mailing_id = new_mailing(stack, list_id, rows=1)
    leave_by_page(stack, stranger, list_id, reader, mailing_id=mailing_id)
    assert mailing_id in {
        each["mailing_id"] for each in read_history(client, list_id, reader.user_id)
    }
    erase(stack.resources, reader.email)
    assert {each["mailing_id"] for each in read_history(client, list_id, reader.user_id)} == {None}
