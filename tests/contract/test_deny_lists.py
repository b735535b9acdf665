"""Addresses and domains of which an owner wants no new members: /deny-list."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from core.errors import DomainError
from devstack.harness.polling import eventually
from devstack.harness.stack import Owner, Stack
from services.subscriptions import deny_lists
from tests.support.http.replies import data, problem
from tests.support.imports.bulk import add, addresses, counts, errors, imported, sheet
from tests.support.lists.people_on_lists import subscribe as a_subscriber
from tests.support.lists.people_on_lists import subscribe_pending
from tests.support.lists.subscribers import (
    Reader,
    known_member,
    member,
    new_address,
    new_list,
    subscribe,
    trace_for,
)
from tests.support.people.erasure import erase
from tests.support.senders.own_senders import new_sender
from tests.support.senders.posting import bounce, deliver, outcomes, report

PATH = "/deny-list"
EMPTY: dict[str, list[str]] = {"addresses": [], "domains": []}


def denied(client: httpx2.Client) -> dict[str, Any]:
    """Return the entries of a deny list that denies no erased person."""
    entries: dict[str, Any] = data(client.get(PATH))
    assert entries.pop("erased") == 0
    return entries


def deny(client: httpx2.Client, *entries: str) -> int:
    """Add entries to the deny list."""
    body = {
        "add_addresses": [each for each in entries if "@" in each],
        "add_domains": [each for each in entries if "@" not in each],
    }
    changed: int = data(client.patch(PATH, json=body))
    return changed


def error_places(client: httpx2.Client, method: str, body: dict[str, Any]) -> list[str]:
    found = problem(client.request(method, PATH, json=body), 422, "deny_list.entry")
    return [each["field"] for each in found["errors"]]


def test_deny_list_starts_empty_and_is_replaced_and_normalized_by_put(
    client: httpx2.Client,
) -> None:
    assert denied(client) == EMPTY
    body = {
        "addresses": ["Spam@Example.NET", "böse@example.net"],
        "domains": ["xn--bcher-kva.example.org", "*.Example.ORG", "*.zip"],
    }
    assert data(client.put(PATH, json=body)) == 5
    assert denied(client) == {
        "addresses": ["böse@example.net", "spam@example.net"],
        "domains": ["*.example.org", "*.zip", "bücher.example.org"],
    }
    assert data(client.put(PATH, json=body)) == 0
    assert data(client.put(PATH, json={"addresses": ["b@example.net"], "domains": []})) == 6
    assert data(client.put(PATH, json=EMPTY)) == 1
    assert denied(client) == EMPTY


def test_deny_list_entries_are_added_and_removed_by_patch(client: httpx2.Client) -> None:
    assert deny(client, "a@example.net", "example.org") == 2
    assert deny(client, "A@example.net", "*.example.org") == 1
    removed = {"remove_addresses": ["a@EXAMPLE.net", "b@example.net"], "remove_domains": []}
    assert data(client.patch(PATH, json=removed)) == 1
    assert data(client.patch(PATH, json={})) == 0
    assert denied(client) == {"addresses": [], "domains": ["*.example.org", "example.org"]}


def test_deny_list_names_each_malformed_entry_and_stays_unchanged(client: httpx2.Client) -> None:
    deny(client, "example.org")
    body = {
        "addresses": ["ada@example.net", "ada@", "example.net"],
        "domains": ["ada@example.net", "example.net", "*", "*.", "*.*.net", "a b.net", ""],
    }
    assert error_places(client, "PUT", body) == [
        "body.addresses[1]",
        "body.addresses[2]",
        "body.domains[0]",
        *(f"body.domains[{number}]" for number in range(2, 7)),
    ]
    assert error_places(client, "PATCH", {"remove_domains": ["-"]}) == ["body.remove_domains[0]"]
    assert error_places(client, "PATCH", {"add_addresses": ["-"]}) == ["body.add_addresses[0]"]
    assert denied(client) == {"addresses": [], "domains": ["example.org"]}


@pytest.mark.tier("properties")
def test_deny_list_holds_at_most_100_000_entries(client: httpx2.Client) -> None:
    domains = [f"d{number}.example.org" for number in range(100_000)]
    assert data(client.put(PATH, json={"addresses": [], "domains": domains})) == 100_000
    one_more = client.patch(PATH, json={"add_domains": ["example.net"]})
    problem(one_more, 422, "deny_list.too_long")
    changed = {"add_domains": ["example.net"], "remove_domains": domains[:1]}
    assert data(client.patch(PATH, json=changed)) == 2
    assert len(data(client.get(PATH))["domains"]) == 100_000
    assert data(client.put(PATH, json=EMPTY)) == 100_000


def test_concurrent_additions_never_exceed_the_deny_list_limit(
    stack: Stack, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deny_lists, "MAX_ENTRIES", 5)
    together = threading.Barrier(2)

    def change(of: str) -> str:
        together.wait(10)
        entries = [f"{of}{number}.example.org" for number in range(3)]
        try:
            with stack.resources.unit_of_work() as uow:
                deny_lists.change_entries(uow, owner.user_id, add=entries, remove=[])
        except DomainError as error:
            return error.code
        return "taken"

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(change, "ab")) == ["deny_list.too_long", "taken"]


def test_deny_list_applies_only_to_lists_of_its_owner(
    client: httpx2.Client, other_owner: httpx2.Client
) -> None:
    domain = "only-mine.example.org"
    deny(client, domain)
    assert denied(other_owner) == EMPTY
    address = f"{new_address().partition('@')[0]}@{domain}"
    theirs = new_list(other_owner)["id"]
    assert data(add(other_owner, theirs, address)) == 1
    assert data(add(client, new_list(client)["id"], address)) == 0


def test_sign_up_of_an_address_on_the_deny_list_looks_successful_but_adds_nobody(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, list_id: int
) -> None:
    kept_out, let_in = new_address(), new_address()
    deny(client, kept_out)
    replies = [subscribe(stranger, list_id, email) for email in (kept_out, let_in)]
    assert [data(reply) for reply in replies] == [1, 1]
    assert {frozenset(reply.headers) for reply in replies} == {frozenset(replies[0].headers)}
    assert member(client, list_id, kept_out) is None
    assert known_member(client, list_id, let_in)["status"] == "active"
    assert stack.query("SELECT 1 FROM users WHERE email = %s", kept_out) == []


def test_logged_in_person_on_the_deny_list_is_rejected_until_the_entry_is_removed(
    client: httpx2.Client, reader: Reader, list_id: int
) -> None:
    deny(client, reader.email)
    path = f"/subscriptions/{list_id}/no-challenge"
    problem(reader.client.post(path), 409, "member.denied")
    data(client.put(PATH, json=EMPTY))
    reader.joins(list_id)


def test_confirmation_link_of_an_address_on_the_deny_list_activates_no_member(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client
) -> None:
    waiting = subscribe_pending(stack, new_list(client, confirm_required=True)["id"])
    url = waiting.confirm_url()
    deny(client, waiting.email)
    assert stranger.post(url).status_code == 409
    assert waiting.stands()[0] == "pending"
    data(client.put(PATH, json=EMPTY))
    assert stranger.post(url).status_code == 303
    assert waiting.stands()[0] == "active"


def test_deny_list_also_matches_the_former_address_of_a_member(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, reader: Reader, list_id: int
) -> None:
    reader.joins(list_id).leaves(list_id)
    deny(client, reader.email)
    moved_to = new_address()
    stack.query("UPDATE users SET email = %s WHERE id = %s", moved_to, reader.user_id)
    problem(reader.client.post(f"/subscriptions/{list_id}/no-challenge"), 409, "member.denied")
    undo = {"trace_id": trace_for(stack, list_id, reader.user_id), "action": "undo"}
    assert stranger.post("/unsubscribe", data=undo).status_code == 409
    assert data(subscribe(stranger, list_id, moved_to)) == 1
    assert reader.stands(list_id)[0] == "unsubscribed"


def test_transfer_of_a_denied_member_only_succeeds_to_a_list_with_that_member(
    client: httpx2.Client, reader: Reader, list_id: int
) -> None:
    target = new_list(client)["id"]
    reader.joins(list_id)
    deny(client, reader.email)
    path = f"/subscriptions/{list_id}/members/{reader.user_id}/transfer"
    problem(client.post(path, params={"dst_list_id": target}), 409, "member.denied")
    assert reader.stands(list_id) == ("active", True)
    assert member(client, target, reader.email) is None
    data(client.put(PATH, json=EMPTY))
    reader.joins(target)
    deny(client, reader.email)
    assert data(client.post(path, params={"dst_list_id": target})) == 1
    assert (reader.stands(list_id)[0], reader.stands(target)[0]) == ("removed", "active")


def test_owner_cannot_add_an_address_on_the_deny_list_but_can_change_its_member(
    client: httpx2.Client, reader: Reader, list_id: int
) -> None:
    reader.joins(list_id)
    kept_out = new_address()
    deny(client, kept_out, reader.email)
    path = f"/lists/{list_id}/members"
    problem(client.put(f"{path}/{kept_out}", json={"name": "Ann"}), 409, "member.denied")
    assert member(client, list_id, kept_out) is None
    assert data(client.put(f"{path}/{reader.email}", json={"name": "Ben"}))["name"] == "Ben"
    data(client.delete(f"/subscriptions/{list_id}/members/{reader.user_id}"))
    problem(client.put(f"{path}/{reader.email}", json={}), 409, "member.denied")


def test_member_on_the_deny_list_keeps_the_membership_and_can_still_unsubscribe(
    stack: Stack, client: httpx2.Client, reader: Reader, list_id: int
) -> None:
    reader.joins(list_id)
    deny(client, reader.email)
    assert reader.stands(list_id) == ("active", True)
    path = f"/lists/{list_id}/members/{reader.user_id}"
    assert data(client.patch(path, json={"name": "Ann"}))["name"] == "Ann"
    reader.wants_mail(list_id, enabled=False)
    reader.wants_mail(list_id, enabled=True)
    # A member whose address is denied can still unsubscribe.
    trace = {"trace_id": trace_for(stack, list_id, reader.user_id)}
    assert data(client.delete(f"/subscriptions/{list_id}", params=trace)) == 1
    assert reader.stands(list_id)[0] == "unsubscribed"


def test_reports_apply_to_members_on_the_deny_list_and_add_nobody(
    stack: Stack, client: httpx2.Client, list_id: int
) -> None:
    bouncing, complaining, unknown = addresses(3)
    data(add(client, list_id, bouncing, complaining))
    deny(client, bouncing, complaining, unknown)
    sender = new_sender(client, list_ids=[list_id])
    reports = [
        bounce(email=bouncing),
        report("complained", email=complaining),
        report("delivered", email=unknown),
        report("complained", email=unknown),
    ]
    deliver(stack, client, sender, *reports)
    assert outcomes(client, sender) == ["applied", "applied", "unmatched", "applied"]
    assert known_member(client, list_id, bouncing)["email_off"]["reason"] == "bounced"
    eventually(
        lambda: known_member(client, list_id, complaining)["status"] == "unsubscribed",
        what="the opt-out",
    )
    assert member(client, list_id, unknown) is None
    # The unknown address stays opted out after its removal from the deny list.
    data(client.put(PATH, json=EMPTY))
    data(add(client, list_id, unknown))
    assert member(client, list_id, unknown) is None


def test_import_rejects_rows_on_the_deny_list_and_counts_and_names_them(
    client: httpx2.Client, reader: Reader, make_reader: Callable[[], Reader], list_id: int
) -> None:
    was_removed = make_reader()
    reader.joins(list_id)
    was_removed.joins(list_id)
    data(client.delete(f"/subscriptions/{list_id}/members/{was_removed.user_id}"))
    [let_in, by_address, by_domain, by_star, has_left] = addresses(5)
    by_domain = by_domain.replace("@example.com", "@denied.example.org")
    by_star = by_star.replace("@example.com", "@a.b.example.net")
    deny(client, by_address, "denied.example.org", "*.example.net", reader.email)
    deny(client, was_removed.email, has_left)
    rows = [let_in, by_address, by_domain, by_star, reader.email, was_removed.email]
    file = sheet(
        ["Email", "Status"], *([email, "active"] for email in rows), [has_left, "unsubscribed"]
    )
    expected = {"received": 7, "added": 1, "already": 1, "opted_out": 1, "denied": 4}
    for options in ({"dry_run": "1"}, {}):
        result = imported(client, list_id, file, **options)
        assert counts(result) == expected
        told = errors(result["errors_url"])
        denied = [each["Email"] for each in told if each["code"] == "member.denied"]
        assert denied == [by_address, by_domain, by_star, was_removed.email]
        assert data(client.get(f"/imports/{result['import_id']}"))["denied"] == 4
    for email in (by_address, by_domain, by_star):
        assert member(client, list_id, email) is None
    assert known_member(client, list_id, was_removed.email)["status"] == "removed"
    assert known_member(client, list_id, reader.email)["status"] == "active"
    # Once the deny list is gone, the opt-out is still one.
    data(client.put(PATH, json=EMPTY))
    again = imported(client, list_id, sheet(["Email"], [by_star], [has_left]))
    assert counts(again) == {"received": 2, "added": 1, "opted_out": 1}


def test_deny_list_still_blocks_an_address_after_the_erasure_of_its_person(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, list_id: int
) -> None:
    reader = a_subscriber(stack, new_list(client)["id"])
    deny(client, reader.email, "stays@example.net")
    erase(stack.resources, reader.email)
    after = {"addresses": ["stays@example.net"], "domains": [], "erased": 1}
    assert data(client.get(PATH)) == after
    # The person can't join through a sign-up form, an action of the owner, or a link in a mail.
    data(subscribe(stranger, list_id, reader.email))
    path = f"/lists/{list_id}/members/{reader.email}"
    problem(client.put(path, json={}), 409, "member.denied")
    assert data(add(client, list_id, reader.email, prefer="wait=30")) == 0
    assert member(client, list_id, reader.email) is None
    waiting = subscribe_pending(stack, new_list(client, confirm_required=True)["id"])
    stack.query("UPDATE users SET email = %s WHERE id = %s", reader.email, waiting.user_id)
    assert stranger.post(waiting.confirm_url()).status_code == 409
    # The owner replaces the list by all entries that they can read. This keeps the denial.
    assert data(client.put(PATH, json=EMPTY)) == 1
    assert data(client.get(PATH)) == {**EMPTY, "erased": 1}
    problem(client.put(path, json={}), 409, "member.denied")
    removed = {"remove_addresses": [reader.email.upper()]}
    assert [data(client.patch(PATH, json=removed)) for _ in range(2)] == [1, 0]
    assert denied(client) == EMPTY
    assert data(client.put(path, json={}))["status"] == "active"


def test_address_of_an_erased_person_can_be_added_to_the_deny_list_again(
    stack: Stack, client: httpx2.Client, other_owner: httpx2.Client
) -> None:
    reader = a_subscriber(stack, new_list(client)["id"])
    for owner in (client, other_owner):
        deny(owner, reader.email)
    erase(stack.resources, reader.email)
    assert deny(client, reader.email) == 1
    assert denied(client) == {"addresses": [reader.email], "domains": []}
    assert data(other_owner.get(PATH)) == {**EMPTY, "erased": 1}
    assert data(client.put(PATH, json=EMPTY)) == 1
    assert denied(client) == EMPTY
