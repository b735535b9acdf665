"""Tests of deny lists, with which owners block addresses and domains from becoming members."""

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
from tests.support.imports.bulk import (
    add,
    build_addresses,
    build_csv,
    fetch_rejected_rows,
    import_members_file,
    nonzero_counts,
)
from tests.support.lists.people_on_lists import subscribe as a_subscriber
from tests.support.lists.people_on_lists import subscribe_pending
from tests.support.lists.subscribers import (
    Reader,
    find_member,
    new_address,
    new_list,
    require_member,
    subscribe,
    trace_for,
)
from tests.support.people.erasure import erase
from tests.support.senders.own_senders import new_sender
from tests.support.senders.posting import bounce, deliver, outcomes, report

DENY_LIST_PATH = "/deny-list"
EMPTY_ENTRIES: dict[str, list[str]] = {"addresses": [], "domains": []}


def list_entries(client: httpx2.Client) -> dict[str, Any]:
    """Return the entries of a deny list that denies no erased person."""
    entries: dict[str, Any] = data(client.get(DENY_LIST_PATH))
    assert entries.pop("erased") == 0
    return entries


def add_entries(client: httpx2.Client, *new_entries: str) -> int:
    """Add entries to the deny list."""
    body = {
        "add_addresses": [each for each in new_entries if "@" in each],
        "add_domains": [each for each in new_entries if "@" not in each],
    }
    changed_count: int = data(client.patch(DENY_LIST_PATH, json=body))
    return changed_count


def invalid_fields(client: httpx2.Client, method: str, body: dict[str, Any]) -> list[str]:
    error = problem(client.request(method, DENY_LIST_PATH, json=body), 422, "deny_list.entry")
    return [each["field"] for each in error["errors"]]


def test_deny_list_starts_empty_and_is_replaced_and_normalized_by_put(
    client: httpx2.Client,
) -> None:
    assert list_entries(client) == EMPTY_ENTRIES
    body = {
        "addresses": ["Spam@Example.NET", "böse@example.net"],
        "domains": ["xn--bcher-kva.example.org", "*.Example.ORG", "*.zip"],
    }
    assert data(client.put(DENY_LIST_PATH, json=body)) == 5
    assert list_entries(client) == {
        "addresses": ["böse@example.net", "spam@example.net"],
        "domains": ["*.example.org", "*.zip", "bücher.example.org"],
    }
    assert data(client.put(DENY_LIST_PATH, json=body)) == 0
    other_entries: dict[str, list[str]] = {"addresses": ["b@example.net"], "domains": []}
    assert data(client.put(DENY_LIST_PATH, json=other_entries)) == 6
    assert data(client.put(DENY_LIST_PATH, json=EMPTY_ENTRIES)) == 1
    assert list_entries(client) == EMPTY_ENTRIES


def test_deny_list_entries_are_added_and_removed_by_patch(client: httpx2.Client) -> None:
    assert add_entries(client, "a@example.net", "example.org") == 2
    assert add_entries(client, "A@example.net", "*.example.org") == 1
    removals = {"remove_addresses": ["a@EXAMPLE.net", "b@example.net"], "remove_domains": []}
    assert data(client.patch(DENY_LIST_PATH, json=removals)) == 1
    assert data(client.patch(DENY_LIST_PATH, json={})) == 0
    assert list_entries(client) == {"addresses": [], "domains": ["*.example.org", "example.org"]}


def test_deny_list_names_each_malformed_entry_and_stays_unchanged(client: httpx2.Client) -> None:
    add_entries(client, "example.org")
    body = {
        "addresses": ["ada@example.net", "ada@", "example.net"],
        "domains": ["ada@example.net", "example.net", "*", "*.", "*.*.net", "a b.net", ""],
    }
    assert invalid_fields(client, "PUT", body) == [
        "body.addresses[1]",
        "body.addresses[2]",
        "body.domains[0]",
        *(f"body.domains[{number}]" for number in range(2, 7)),
    ]
    assert invalid_fields(client, "PATCH", {"remove_domains": ["-"]}) == ["body.remove_domains[0]"]
    assert invalid_fields(client, "PATCH", {"add_addresses": ["-"]}) == ["body.add_addresses[0]"]
    assert list_entries(client) == {"addresses": [], "domains": ["example.org"]}


@pytest.mark.tier("properties")
def test_deny_list_holds_at_most_100_000_entries(client: httpx2.Client) -> None:
    domains = [f"d{number}.example.org" for number in range(100_000)]
    assert data(client.put(DENY_LIST_PATH, json={"addresses": [], "domains": domains})) == 100_000
    reply = client.patch(DENY_LIST_PATH, json={"add_domains": ["example.net"]})
    problem(reply, 422, "deny_list.too_long")
    changes = {"add_domains": ["example.net"], "remove_domains": domains[:1]}
    assert data(client.patch(DENY_LIST_PATH, json=changes)) == 2
    assert len(data(client.get(DENY_LIST_PATH))["domains"]) == 100_000
    assert data(client.put(DENY_LIST_PATH, json=EMPTY_ENTRIES)) == 100_000


def test_concurrent_additions_never_exceed_the_deny_list_limit(
    stack: Stack, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deny_lists, "MAX_ENTRIES", 5)
    barrier = threading.Barrier(2)

    def add_three_domains(prefix: str) -> str:
        barrier.wait(10)
        entries = [f"{prefix}{number}.example.org" for number in range(3)]
        try:
            with stack.resources.unit_of_work() as uow:
                deny_lists.change_entries(uow, owner.account_id, add=entries, remove=[])
        except DomainError as error:
            return error.code
        return "added"

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(add_three_domains, "ab")) == ["added", "deny_list.too_long"]


def test_deny_list_applies_only_to_lists_of_its_owner(
    client: httpx2.Client, other_owner: httpx2.Client
) -> None:
    domain = "only-mine.example.org"
    add_entries(client, domain)
    assert list_entries(other_owner) == EMPTY_ENTRIES
    address = f"{new_address().partition('@')[0]}@{domain}"
    other_list_id = new_list(other_owner)["id"]
    assert data(add(other_owner, other_list_id, address)) == 1
    assert data(add(client, new_list(client)["id"], address)) == 0


def test_sign_up_of_an_address_on_the_deny_list_looks_successful_but_adds_nobody(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, list_id: int
) -> None:
    denied_email, allowed_email = new_address(), new_address()
    add_entries(client, denied_email)
    replies = [subscribe(stranger, list_id, email) for email in (denied_email, allowed_email)]
    assert [data(reply) for reply in replies] == [1, 1]
    assert {frozenset(reply.headers) for reply in replies} == {frozenset(replies[0].headers)}
    assert find_member(client, list_id, denied_email) is None
    assert require_member(client, list_id, allowed_email)["status"] == "active"
    assert stack.query("SELECT 1 FROM users WHERE email = %s", denied_email) == []


def test_logged_in_person_on_the_deny_list_is_rejected_until_the_entry_is_removed(
    client: httpx2.Client, reader: Reader, list_id: int
) -> None:
    add_entries(client, reader.email)
    path = f"/subscriptions/{list_id}/no-challenge"
    problem(reader.client.post(path), 409, "member.denied")
    data(client.put(DENY_LIST_PATH, json=EMPTY_ENTRIES))
    reader.joins(list_id)


def test_confirmation_link_of_an_address_on_the_deny_list_activates_no_member(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client
) -> None:
    pending = subscribe_pending(stack, new_list(client, confirm_required=True)["id"])
    url = pending.confirm_url()
    add_entries(client, pending.email)
    assert stranger.post(url).status_code == 409
    assert pending.read_status()[0] == "pending"
    data(client.put(DENY_LIST_PATH, json=EMPTY_ENTRIES))
    assert stranger.post(url).status_code == 303
    assert pending.read_status()[0] == "active"


def test_deny_list_also_matches_the_former_address_of_a_member(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, reader: Reader, list_id: int
) -> None:
    reader.joins(list_id).leaves(list_id)
    add_entries(client, reader.email)
    new_email = new_address()
    stack.query("UPDATE users SET email = %s WHERE id = %s", new_email, reader.user_id)
    problem(reader.client.post(f"/subscriptions/{list_id}/no-challenge"), 409, "member.denied")
    undo_form = {"trace_id": trace_for(stack, list_id, reader.user_id), "action": "undo"}
    assert stranger.post("/unsubscribe", data=undo_form).status_code == 409
    assert data(subscribe(stranger, list_id, new_email)) == 1
    assert reader.read_status(list_id)[0] == "unsubscribed"


def test_transfer_of_a_denied_member_only_succeeds_to_a_list_with_that_member(
    client: httpx2.Client, reader: Reader, list_id: int
) -> None:
    target_list_id = new_list(client)["id"]
    reader.joins(list_id)
    add_entries(client, reader.email)
    path = f"/subscriptions/{list_id}/members/{reader.user_id}/transfer"
    problem(client.post(path, params={"dst_list_id": target_list_id}), 409, "member.denied")
    assert reader.read_status(list_id) == ("active", True)
    assert find_member(client, target_list_id, reader.email) is None
    data(client.put(DENY_LIST_PATH, json=EMPTY_ENTRIES))
    reader.joins(target_list_id)
    add_entries(client, reader.email)
    assert data(client.post(path, params={"dst_list_id": target_list_id})) == 1
    assert (reader.read_status(list_id)[0], reader.read_status(target_list_id)[0]) == (
        "removed",
        "active",
    )


def test_owner_cannot_add_an_address_on_the_deny_list_but_can_change_its_member(
    client: httpx2.Client, reader: Reader, list_id: int
) -> None:
    reader.joins(list_id)
    denied_email = new_address()
    add_entries(client, denied_email, reader.email)
    path = f"/lists/{list_id}/members"
    problem(client.put(f"{path}/{denied_email}", json={"name": "Ann"}), 409, "member.denied")
    assert find_member(client, list_id, denied_email) is None
    assert data(client.put(f"{path}/{reader.email}", json={"name": "Ben"}))["name"] == "Ben"
    data(client.delete(f"/subscriptions/{list_id}/members/{reader.user_id}"))
    problem(client.put(f"{path}/{reader.email}", json={}), 409, "member.denied")


def test_member_on_the_deny_list_keeps_the_membership_and_can_still_unsubscribe(
    stack: Stack, client: httpx2.Client, reader: Reader, list_id: int
) -> None:
    reader.joins(list_id)
    add_entries(client, reader.email)
    assert reader.read_status(list_id) == ("active", True)
    path = f"/lists/{list_id}/members/{reader.user_id}"
    assert data(client.patch(path, json={"name": "Ann"}))["name"] == "Ann"
    reader.wants_mail(list_id, enabled=False)
    reader.wants_mail(list_id, enabled=True)
    # A member whose address is denied can still unsubscribe.
    params = {"trace_id": trace_for(stack, list_id, reader.user_id)}
    assert data(client.delete(f"/subscriptions/{list_id}", params=params)) == 1
    assert reader.read_status(list_id)[0] == "unsubscribed"


def test_reports_apply_to_members_on_the_deny_list_and_add_nobody(
    stack: Stack, client: httpx2.Client, list_id: int
) -> None:
    bouncing_email, complaining_email, unknown_email = build_addresses(3)
    data(add(client, list_id, bouncing_email, complaining_email))
    add_entries(client, bouncing_email, complaining_email, unknown_email)
    sender = new_sender(client, list_ids=[list_id])
    reports = [
        bounce(email=bouncing_email),
        report("complained", email=complaining_email),
        report("delivered", email=unknown_email),
        report("complained", email=unknown_email),
    ]
    deliver(stack, client, sender, *reports)
    assert outcomes(client, sender) == ["applied", "applied", "unmatched", "applied"]
    assert require_member(client, list_id, bouncing_email)["email_off"]["reason"] == "bounced"
    eventually(
        lambda: require_member(client, list_id, complaining_email)["status"] == "unsubscribed",
        what="the opt-out",
    )
    assert find_member(client, list_id, unknown_email) is None
    # The unknown address stays opted out after its removal from the deny list.
    data(client.put(DENY_LIST_PATH, json=EMPTY_ENTRIES))
    data(add(client, list_id, unknown_email))
    assert find_member(client, list_id, unknown_email) is None


def test_import_rejects_rows_on_the_deny_list_and_counts_and_names_them(
    client: httpx2.Client, reader: Reader, make_reader: Callable[[], Reader], list_id: int
) -> None:
    removed_reader = make_reader()
    reader.joins(list_id)
    removed_reader.joins(list_id)
    data(client.delete(f"/subscriptions/{list_id}/members/{removed_reader.user_id}"))
    [allowed, denied_by_address, denied_by_domain, denied_by_wildcard, opted_out] = build_addresses(
        5
    )
    denied_by_domain = denied_by_domain.replace("@example.com", "@denied.example.org")
    denied_by_wildcard = denied_by_wildcard.replace("@example.com", "@a.b.example.net")
    add_entries(client, denied_by_address, "denied.example.org", "*.example.net", reader.email)
    add_entries(client, removed_reader.email, opted_out)
    row_emails = [
        allowed,
        denied_by_address,
        denied_by_domain,
        denied_by_wildcard,
        reader.email,
        removed_reader.email,
    ]
    file = build_csv(
        ["Email", "Status"],
        *([email, "active"] for email in row_emails),
        [opted_out, "unsubscribed"],
    )
    expected = {"received": 7, "added": 1, "already": 1, "opted_out": 1, "denied": 4}
    for options in ({"dry_run": "1"}, {}):
        result = import_members_file(client, list_id, file, **options)
        assert nonzero_counts(result) == expected
        rejected_rows = fetch_rejected_rows(result["errors_url"])
        denied_emails = [each["Email"] for each in rejected_rows if each["code"] == "member.denied"]
        assert denied_emails == [
            denied_by_address,
            denied_by_domain,
            denied_by_wildcard,
            removed_reader.email,
        ]
        assert data(client.get(f"/imports/{result['import_id']}"))["denied"] == 4
    for email in (denied_by_address, denied_by_domain, denied_by_wildcard):
        assert find_member(client, list_id, email) is None
    assert require_member(client, list_id, removed_reader.email)["status"] == "removed"
    assert require_member(client, list_id, reader.email)["status"] == "active"
    # The opt-out stays after the deny list is emptied.
    data(client.put(DENY_LIST_PATH, json=EMPTY_ENTRIES))
    second_result = import_members_file(
        client, list_id, build_csv(["Email"], [denied_by_wildcard], [opted_out])
    )
    assert nonzero_counts(second_result) == {"received": 2, "added": 1, "opted_out": 1}


def test_deny_list_still_blocks_an_address_after_the_erasure_of_its_person(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, list_id: int
) -> None:
    reader = a_subscriber(stack, new_list(client)["id"])
    add_entries(client, reader.email, "stays@example.net")
    erase(stack.resources, reader.email)
    expected_list = {"addresses": ["stays@example.net"], "domains": [], "erased": 1}
    assert data(client.get(DENY_LIST_PATH)) == expected_list
    # The person can't join through a sign-up form, an action of the owner, or a link in a mail.
    data(subscribe(stranger, list_id, reader.email))
    path = f"/lists/{list_id}/members/{reader.email}"
    problem(client.put(path, json={}), 409, "member.denied")
    assert data(add(client, list_id, reader.email, prefer="wait=30")) == 0
    assert find_member(client, list_id, reader.email) is None
    pending = subscribe_pending(stack, new_list(client, confirm_required=True)["id"])
    stack.query("UPDATE users SET email = %s WHERE id = %s", reader.email, pending.user_id)
    assert stranger.post(pending.confirm_url()).status_code == 409
    # The API doesn't show the erased person's address to the owner. The erased person's address
    # therefore stays on the deny list when the owner replaces all other addresses.
    assert data(client.put(DENY_LIST_PATH, json=EMPTY_ENTRIES)) == 1
    assert data(client.get(DENY_LIST_PATH)) == {**EMPTY_ENTRIES, "erased": 1}
    problem(client.put(path, json={}), 409, "member.denied")
    removal = {"remove_addresses": [reader.email.upper()]}
    assert [data(client.patch(DENY_LIST_PATH, json=removal)) for _ in range(2)] == [1, 0]
    assert list_entries(client) == EMPTY_ENTRIES
    assert data(client.put(path, json={}))["status"] == "active"


def test_address_of_an_erased_person_can_be_added_to_the_deny_list_again(
    stack: Stack, client: httpx2.Client, other_owner: httpx2.Client
) -> None:
    reader = a_subscriber(stack, new_list(client)["id"])
    for owner in (client, other_owner):
        add_entries(owner, reader.email)
    erase(stack.resources, reader.email)
    assert add_entries(client, reader.email) == 1
    assert list_entries(client) == {"addresses": [reader.email], "domains": []}
    assert data(other_owner.get(DENY_LIST_PATH)) == {**EMPTY_ENTRIES, "erased": 1}
    assert data(client.put(DENY_LIST_PATH, json=EMPTY_ENTRIES)) == 1
    assert list_entries(client) == EMPTY_ENTRIES
