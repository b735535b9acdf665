"""Up to 100,000 members in one call."""

import json
from collections.abc import Iterator
from secrets import token_hex
from typing import Any

import httpx
import pytest

from models import Plan
from services.mailing.imports.accept import MAX_MEMBERS_PER_REQUEST
from tests.contract.bulk import (
    COUNTS,
    add,
    addresses,
    counts,
    errors,
    everybody,
    export,
    imported,
    newest_job,
    objects,
)
from tests.contract.replies import data, problem
from tests.contract.subscribers import (
    Reader,
    count,
    known_member,
    member,
    new_address,
    new_list,
    trace_for,
)
from tests.contract.test_body_limits import Raw
from tests.stack import Owner, Stack, eventually

MEGABYTE = 1024 * 1024


@pytest.fixture
def key() -> str:
    return token_hex(16)


@pytest.fixture
def frugal(stack: Stack) -> Iterator[httpx.Client]:
    """Calls as an owner on the free plan."""
    with stack.client(stack.new_owner(plan=Plan.FREE).key) as client:
        yield client


def test_new_members_are_active_and_counted(client: httpx.Client, list_id: int) -> None:
    ada, ben = addresses(2)
    reply = add(client, list_id, {"email": ada, "name": " Ada Lovelace "}, ben.upper())
    assert data(reply) == 2
    assert count(client, list_id) == 2
    found = known_member(client, list_id, ada)
    assert (found["name"], found["status"], found["type"]) == ("Ada Lovelace", "active", "free")
    assert (found["source"], found["email_enabled"]) == ("import", True)
    assert known_member(client, list_id, ben)["name"] is None


def test_names_keep_the_apostrophes_that_they_begin_with(
    client: httpx.Client, list_id: int
) -> None:
    """A sheet's guard is none of a request's; and what comes by a request comes back by a sheet."""
    names = ["'=already", "''=x", "'-a; '@b", "'Twas", "=1+1", "'", " '+ "]
    emails = addresses(len(names))
    people = [{"email": each, "name": name} for each, name in zip(emails, names, strict=True)]
    assert data(add(client, list_id, *people)) == len(names)
    expected = {each: name.strip() for each, name in zip(emails, names, strict=True)}
    assert names_on(client, list_id) == expected
    url = data(export(client, list_id, "members"))["result"]["url"]
    other = new_list(client)["id"]
    imported(client, other, httpx.get(url).content, "list-members.csv.gz")
    assert names_on(client, other) == expected


def names_on(client: httpx.Client, list_id: int) -> dict[str, str]:
    return {email: each["name"] for email, each in everybody(client, list_id).items()}


def test_job_has_the_counts_and_the_rows_that_were_not_added(
    client: httpx.Client, list_id: int
) -> None:
    [known, new] = addresses(2)
    data(add(client, list_id, known))
    formula = {"email": "@", "name": "=1+1"}
    assert data(add(client, list_id, known, "no address", new, new.upper(), formula)) == 1
    job = newest_job(client)
    assert (job["kind"], job["status"]) == ("members.add", "succeeded")
    assert {*COUNTS, "errors_url"} <= set(job["result"])
    expected = {"received": 5, "added": 1, "already": 1, "invalid": 2, "duplicate": 1}
    assert counts(job["result"]) == expected
    found = errors(job["result"]["errors_url"])
    assert list(found[0]) == ["email", "name", "line", "code", "reason"]
    assert [(each["line"], each["email"], each["code"]) for each in found] == [
        ("1", known, "member.already"),
        ("2", "no address", "email.invalid"),
        ("4", new.upper(), "row.duplicate"),
        ("5", "'@", "email.invalid"),
    ]
    assert found[-1]["name"] == "'=1+1"
    assert all(each["reason"] for each in found)
    assert (job["progress"]["done"], job["progress"]["total"]) == (5, 5)


def test_all_invalid_is_422_and_nothing_is_left(
    stack: Stack, client: httpx.Client, list_id: int
) -> None:
    before = objects(stack)
    problem(add(client, list_id, "nobody", ""), 422, "members.all_invalid")
    assert count(client, list_id) == 0
    job = newest_job(client)
    assert (job["status"], job["error"]["code"]) == ("failed", "members.all_invalid")
    eventually(lambda: objects(stack) <= before)


def test_members_that_are_there_are_0(client: httpx.Client, list_id: int) -> None:
    emails = addresses(3)
    assert data(add(client, list_id, *emails)) == 3
    assert data(add(client, list_id, *emails)) == 0


def test_whoever_left_stays_out_and_mail_that_is_off_stays_off(
    client: httpx.Client, reader: Reader, make_reader: Any, list_id: int
) -> None:
    left, quiet = reader.joins(list_id).leaves(list_id), make_reader().joins(list_id)
    quiet.wants_mail(list_id, False)
    assert data(add(client, list_id, left.email, quiet.email, new_address())) == 1
    expected = {"received": 3, "added": 1, "already": 1, "opted_out": 1}
    assert counts(newest_job(client)["result"]) == expected
    assert left.stands(list_id)[0] == "unsubscribed"
    assert quiet.stands(list_id) == ("active", False)
    left.joins(list_id)
    assert left.stands(list_id) == ("active", True)


def test_whom_the_owner_removed_can_be_added_again_unless_they_had_opted_out(
    stack: Stack, client: httpx.Client, stranger: httpx.Client, list_id: int
) -> None:
    stays, leaves = addresses(2)
    data(add(client, list_id, stays, leaves))
    ids = {email: known_member(client, list_id, email)["user_id"] for email in (stays, leaves)}
    trace = {"trace_id": trace_for(stack, list_id, ids[leaves])}
    assert data(stranger.delete(f"/subscriptions/{list_id}", params=trace)) == 1
    for user_id in ids.values():
        assert data(client.delete(f"/subscriptions/{list_id}/members/{user_id}")) == 1
    assert data(add(client, list_id, {"email": stays, "name": "Back"}, leaves)) == 1
    assert known_member(client, list_id, stays)["name"] == "Back"
    assert known_member(client, list_id, leaves)["status"] == "removed"


def test_the_name_is_the_lists_own(
    client: httpx.Client, neighbour: httpx.Client, reader: Reader, list_id: int
) -> None:
    other = new_list(neighbour)["id"]
    data(add(client, list_id, {"email": reader.email, "name": "My best reader"}))
    data(add(neighbour, other, {"email": reader.email, "name": "Somebody"}))
    shown = known_member(client, list_id, reader.email)
    assert shown["name"] == "My best reader"
    assert data(reader.client.get("/users/me"))["name"] == reader.name
    assert known_member(neighbour, other, reader.email)["name"] == "Somebody"


def test_an_added_person_has_no_login(stack: Stack, client: httpx.Client, list_id: int) -> None:
    email = new_address()
    data(add(client, list_id, email))
    [row] = stack.query("SELECT password_hash, name FROM users WHERE email = %s", email)
    assert row == (None, None)


# -- who may -------------------------------------------------------------------------------------


def test_it_needs_the_paid_plan(frugal: httpx.Client) -> None:
    own = new_list(frugal)["id"]
    problem(add(frugal, own, new_address()), 403, "plan.required")
    assert count(frugal, own) == 0


def test_only_the_owner_adds(
    client: httpx.Client,
    neighbour: httpx.Client,
    stranger: httpx.Client,
    read_only: httpx.Client,
    list_id: int,
) -> None:
    email = new_address()
    problem(add(neighbour, list_id, email), 403, "list.not_owner")
    problem(add(stranger, list_id, email), 401, "auth.credentials_missing")
    problem(add(read_only, list_id, email), 403, "auth.insufficient_scope")
    problem(add(client, 2**64 - 1, email), 404, "list.not_found")
    assert member(client, list_id, email) is None


# -- bodies --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "body.members"),
        ([], "body"),
        ({"members": []}, "body.members"),
        ({"members": "ada@example.com"}, "body.members"),
        ({"members": [{"name": "Ada"}]}, "body.members[0].email"),
        ({"members": [{"email": "a@example.com"}, {"email": 7}]}, "body.members[1].email"),
        ({"members": [{"email": "a@example.com", "name": 7}]}, "body.members[0].name"),
        ({"members": [None]}, "body.members[0]"),
    ],
)
def test_a_body_of_another_shape_is_422(
    client: httpx.Client, list_id: int, body: object, field: str
) -> None:
    reply = client.post(f"/auxilia/subscriptions/{list_id}/members/add", json=body)
    found = problem(reply, 422, "body.invalid")
    assert field in {each["field"] for each in found["errors"]}
    assert count(client, list_id) == 0


def test_unknown_fields_and_null_names_are_fine(client: httpx.Client, list_id: int) -> None:
    people = {"email": new_address(), "name": None, "phone": 7}
    assert data(add(client, list_id, people)) == 1


def test_more_than_100_000_members_are_413(client: httpx.Client, list_id: int) -> None:
    body = b'{"members": [%b]}' % b",".join([b'{"email":""}'] * (MAX_MEMBERS_PER_REQUEST + 1))
    path = f"/auxilia/subscriptions/{list_id}/members/add"
    reply = client.post(path, content=body, headers={"Content-Type": "application/json"})
    problem(reply, 413, "members.too_many")


def test_a_body_has_at_most_32_megabytes(
    stack: Stack, owner: Owner, client: httpx.Client, list_id: int
) -> None:
    path = f"/auxilia/subscriptions/{list_id}/members/add"
    body = json.dumps({"members": [{"email": new_address()}], "x": "x" * 3 * MEGABYTE})
    headers = {"Content-Type": "application/json"}
    assert data(client.post(path, content=body, headers=headers)) == 1
    head = (
        f"POST {path} HTTP/1.1",
        f"Authorization: Bearer {owner.key}",
        "Content-Type: application/json",
        f"Content-Length: {32 * MEGABYTE + 1}",
    )
    with Raw(stack, *head) as request:
        status, refusal = request.answer()
    assert (status, refusal["code"]) == (413, "body.too_large")
