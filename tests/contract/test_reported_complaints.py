"""Tests that a reported complaint or unsubscription opts the person out."""

from collections import Counter
from contextlib import closing
from functools import partial
from typing import Any

import httpx2
import psycopg2
import pytest

from devstack.harness.polling import eventually
from devstack.harness.stack import Owner, Stack
from services.subscriptions.members import locks
from tests.support.http.replies import data
from tests.support.imports.bulk import add
from tests.support.lists.subscribers import (
    Reader,
    await_mails,
    new_address,
    new_list,
    require_member,
    subscribe,
)
from tests.support.people.erasure import erase
from tests.support.senders.own_senders import new_sender
from tests.support.senders.posting import (
    body_of,
    bounce,
    deliver,
    delivery_for,
    outcomes,
    post,
    report,
    settle,
)


def has_left(client: httpx2.Client, list_id: int, email: str) -> bool:
    return bool(require_member(client, list_id, email)["status"] == "unsubscribed")


@pytest.mark.parametrize(
    ("kind", "source"), [("complained", "sender-complaint"), ("unsubscribed", "sender-unsubscribe")]
)
def test_complaint_or_unsubscription_opts_out_until_the_person_rejoins(
    stack: Stack, client: httpx2.Client, reader: Reader, list_id: int, *, kind: str, source: str
) -> None:
    sender = new_sender(client)
    reader.joins(list_id)
    deliver(
        stack,
        client,
        sender,
        report(kind, delivery_id=delivery_for(stack, list_id, reader.user_id)),
    )
    eventually(lambda: reader.read_status(list_id)[0] == "unsubscribed", what="the opt-out")
    assert stack.query("SELECT source FROM opt_outs WHERE list_id = %s", list_id) == [(source,)]
    path = f"/lists/{list_id}/members/{reader.user_id}/history"

    def find_departure() -> dict[str, Any] | None:
        newest_entry = data(client.get(path))["items"][0]
        return newest_entry if newest_entry["status_after"] == "unsubscribed" else None

    departure = eventually(find_departure, what="the history of the opt-out")
    departure_facts = {name: departure[name] for name in ("action", "actor", "via")}
    assert departure_facts == {"action": kind, "actor": "sender", "via": "sender"}
    events = data(client.get("/events", params={"types": "subscription.left"}))["items"]
    event_data = events[-1]["data"]
    assert (event_data["action"], event_data["via"], event_data["reason"]) == (kind, "sender", kind)
    assert (
        client.put(
            f"/subscriptions/{list_id}/members/{reader.user_id}/email", json={"enabled": True}
        ).status_code
        >= 400
    )
    data(add(client, list_id, reader.email))
    assert reader.read_status(list_id)[0] == "unsubscribed"
    reader.joins(list_id)
    assert reader.read_status(list_id) == ("active", True)


@pytest.mark.parametrize("kind", ["complained", "unsubscribed"])
def test_complaint_about_a_mailing_from_before_a_transfer_holds_on_all_later_lists(
    stack: Stack, client: httpx2.Client, list_id: int, *, kind: str
) -> None:
    email = new_address()
    data(add(client, list_id, email))
    user_id = require_member(client, list_id, email)["user_id"]
    second_id = new_list(client)["id"]
    third_id = new_list(client)["id"]
    for source_id, target_id in ((list_id, second_id), (second_id, third_id)):
        path = f"/subscriptions/{source_id}/members/{user_id}/transfer"
        assert data(client.post(path, params={"dst_list_id": target_id})) == 1
    complaint = report(kind, delivery_id=delivery_for(stack, list_id, user_id))
    limited_sender = new_sender(client, list_ids=[list_id, second_id])
    deliver(stack, client, limited_sender, complaint)
    assert outcomes(client, limited_sender) == ["applied"]
    # The third list has no opt-out, because the sender isn't registered for this list.
    query = "SELECT DISTINCT list_id FROM opt_outs WHERE user_id = %s"
    assert set(stack.query(query, user_id)) == {(list_id,), (int(second_id),)}
    assert not has_left(client, third_id, email)
    deliver(stack, client, new_sender(client), complaint)
    eventually(partial(has_left, client, third_id, email), what="the opt-out")


def test_opt_out_needs_no_job_unless_the_list_is_locked(
    stack: Stack, client: httpx2.Client, sender: dict[str, Any], list_id: int
) -> None:
    emails = [new_address(), new_address()]
    for email in emails:
        data(add(client, list_id, email))
    free_user_id, locked_user_id = (
        int(require_member(client, list_id, email)["user_id"]) for email in emails
    )
    count_jobs = """
        SELECT count(*) FROM jobs AS j JOIN opt_outs AS o ON o.id = j.subject_id
        WHERE j.kind = 'opt_out.follow' AND o.list_id = %s
    """
    complaint = report("complained", delivery_id=delivery_for(stack, list_id, free_user_id))
    deliver(stack, client, sender, complaint)
    eventually(partial(has_left, client, list_id, emails[0]), what="the opt-out")
    assert stack.query(count_jobs, list_id) == [(0,)]
    with closing(psycopg2.connect(stack.owner_url)) as bulk_action, bulk_action.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", (list_id,))
        complaint = report("complained", delivery_id=delivery_for(stack, list_id, locked_user_id))
        deliver(stack, client, sender, complaint)
        assert stack.query(count_jobs, list_id) == [(1,)]
        assert not has_left(client, list_id, emails[1])
    eventually(partial(has_left, client, list_id, emails[1]), within=60, what="the opt-out")


def test_opt_out_takes_effect_while_a_bulk_action_locks_the_list(
    stack: Stack, client: httpx2.Client, sender: dict[str, Any], list_id: int
) -> None:
    emails = [new_address() for _ in range(2)]
    data(add(client, list_id, *emails))
    user_ids = [require_member(client, list_id, email)["user_id"] for email in emails]
    complaint_id, bounce_id = (delivery_for(stack, list_id, user_id) for user_id in user_ids)
    with stack.resources.unit_of_work() as uow:
        locks.lock_list(uow, list_id)
        reports = (report("complained", delivery_id=complaint_id), bounce(delivery_id=bounce_id))
        assert data(post(client, sender, *reports)) == 1
        query = "SELECT source FROM opt_outs WHERE list_id = %s AND user_id = %s"
        eventually(lambda: stack.query(query, list_id, user_ids[0]), what="the opt-out")
        assert outcomes(client, sender) == []
    settle(stack, sender)
    assert outcomes(client, sender) == ["applied", "applied"]


def test_complaint_by_address_opts_out_of_all_covered_lists(
    stack: Stack, client: httpx2.Client, sender: dict[str, Any], list_id: int
) -> None:
    other_list_id = new_list(client)["id"]
    email = new_address()
    for covered_list_id in (list_id, other_list_id):
        data(add(client, covered_list_id, email))
    deliver(
        stack,
        client,
        sender,
        report("complained", email=email.upper()),
        report("delivered", email=email),
        report("complained", email="no address"),
    )
    # The address in the reports belongs to a member of two lists. The outcome of the delivery
    # report is "unmatched", because nobody knows which list's mail was delivered.
    assert outcomes(client, sender) == ["applied", "unmatched", "unmatched"]
    for covered_list_id in (list_id, other_list_id):
        eventually(partial(has_left, client, covered_list_id, email), what="the opt-out")


@pytest.mark.parametrize("names_lists", [False, True])
def test_complaint_of_an_unknown_address_is_kept_on_all_lists_that_the_sender_covers(
    *, stack: Stack, client: httpx2.Client, list_id: int, names_lists: bool
) -> None:
    other_list_id = int(new_list(client)["id"])
    sender = new_sender(client, list_ids=[list_id] if names_lists else None)
    email = new_address()
    deliver(stack, client, sender, *[report("complained", email=email)] * 2)
    assert outcomes(client, sender) == ["applied", "duplicate"]
    # A sender that names no lists covers the lists that exist at that time.
    later_list_id = int(new_list(client)["id"])
    member_counts = {list_id: 0, other_list_id: int(names_lists), later_list_id: 1}
    for each_list_id, member_count in member_counts.items():
        data(add(client, each_list_id, email))
        assert data(client.get(f"/lists/{each_list_id}"))["subscriber_count"] == member_count


def test_complaint_of_an_unknown_address_has_no_effect_on_an_account_without_lists(
    stack: Stack, client: httpx2.Client, owner: Owner
) -> None:
    sender = new_sender(client)
    deliver(stack, client, sender, report("complained", email=new_address()))
    assert outcomes(client, sender) == ["unmatched"]
    query = "SELECT 1 FROM address_opt_outs WHERE user_id = %s"
    assert not stack.query(query, owner.user_id)


def test_opt_out_of_an_unknown_address_is_stored_once_with_all_lists(
    stack: Stack, client: httpx2.Client
) -> None:
    list_ids = [int(new_list(client)["id"]) for _ in range(3)]
    sender = new_sender(client, list_ids=list_ids)
    emails = [new_address() for _ in range(999)]
    deliver(
        stack,
        client,
        sender,
        report("unsubscribed", email=emails[0]),
        *(report("complained", email=each) for each in emails),
    )
    assert Counter(outcomes(client, sender)) == {"applied": 999, "duplicate": 1}
    query = """
        SELECT list_ids, source, count(*) FROM address_opt_outs
        WHERE user_id = (SELECT user_id FROM lists WHERE id = %s) GROUP BY 1, 2
    """
    assert stack.query(query, list_ids[0]) == [(sorted(list_ids), "sender-complaint", 999)]
    assert not stack.query("SELECT 1 FROM opt_outs WHERE list_id = ANY (%s)", list_ids)


def test_later_reports_about_an_unknown_address_add_their_lists(
    stack: Stack, client: httpx2.Client
) -> None:
    list_ids = [int(new_list(client)["id"]) for _ in range(3)]
    email = new_address()
    expected_outcomes = {
        (0, 1): "applied",
        (1,): "duplicate",
        (1, 2): "applied",
        (0, 2): "duplicate",
    }
    for numbers, outcome in expected_outcomes.items():
        sender = new_sender(client, list_ids=[list_ids[number] for number in numbers])
        trial = {"body": body_of(report("complained", email=email)).decode()}
        [effect] = data(client.post(f"/senders/{sender['id']}/try", json=trial))
        deliver(stack, client, sender, report("complained", email=email))
        assert outcomes(client, sender) == [effect["outcome"]] == [outcome]
    for list_id in list_ids:
        data(add(client, list_id, email))
        assert data(client.get(f"/lists/{list_id}"))["subscriber_count"] == 0


def test_complaint_about_a_mail_to_an_erased_person_is_kept_on_the_list_of_the_mail(
    stack: Stack, client: httpx2.Client, list_id: int
) -> None:
    other_list_id = int(new_list(client)["id"])
    email = new_address()
    data(add(client, list_id, email))
    delivery_id = delivery_for(stack, list_id, require_member(client, list_id, email)["user_id"])
    erase(stack.resources, email)
    complaint = report("complained", delivery_id=delivery_id, email=email.upper())
    sender_of_other_list = new_sender(client, list_ids=[other_list_id])
    deliver(stack, client, sender_of_other_list, complaint)
    assert outcomes(client, sender_of_other_list) == ["unmatched"]
    sender_of_both_lists = new_sender(client, list_ids=[list_id, other_list_id])
    deliver(stack, client, sender_of_both_lists, complaint, complaint)
    assert outcomes(client, sender_of_both_lists) == ["applied", "duplicate"]
    for each_list_id, member_count in ((list_id, 0), (other_list_id, 1)):
        data(add(client, each_list_id, email))
        assert data(client.get(f"/lists/{each_list_id}"))["subscriber_count"] == member_count
    # This complaint doesn't opt out the member whose address it contains, because the delivery id
    # in the complaint belongs to a mail to another person.
    late_complaint = report("complained", delivery_id=delivery_id.upper(), email=email)
    foreign_delivery = delivery_for(
        stack, other_list_id, require_member(client, other_list_id, email)["user_id"] + 1
    )
    deliver(
        stack, client, sender_of_both_lists, {**late_complaint, "delivery_id": foreign_delivery}
    )
    assert data(client.get(f"/lists/{other_list_id}"))["subscriber_count"] == 1
    assert outcomes(client, sender_of_both_lists)[-1] == "unmatched"


def test_complaint_about_a_confirmation_mail_ends_the_sign_up(
    stack: Stack, client: httpx2.Client, sender: dict[str, Any], stranger: httpx2.Client
) -> None:
    list_id = int(new_list(client, confirm_required=True)["id"])
    email = new_address()
    data(subscribe(stranger, list_id, email))
    [mail] = await_mails(stack, email)
    delivery_id = dict(mail["headers"])["X-Pressroom-Delivery"]
    deliver(stack, client, sender, report("complained", delivery_id=delivery_id))
    eventually(
        lambda: require_member(client, list_id, email)["status"] == "unsubscribed", what="the end"
    )
