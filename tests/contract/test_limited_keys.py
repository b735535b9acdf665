"""Tests of limited API keys, with which owners export the rosters of their own lists."""

from typing import Any

import httpx2
import pytest

from core.scopes import Scope
from devstack.harness.polling import eventually
from devstack.harness.stack import Owner, Stack
from models import Plan
from tests.support.commands.running import pressroom, run_json_command
from tests.support.http.replies import data, problem
from tests.support.imports.bulk import export, fetch_rows
from tests.support.lists.subscribers import Reader, new_list
from tests.support.people.limited_keys import create_limited_key, request_key
from tests.support.people.oauth import log_in, register
from tests.support.people.visiting import age_logins, new_visitor
from tests.support.senders.own_senders import new_sender

MAIL_SUBJECT = "Your account has a new key for sending"
KEYS_ABOVE_THE_HOURLY_LIMIT = 4


@pytest.fixture
def foreign_list_id(other_owner: httpx2.Client) -> int:
    """The id of a list of another owner."""
    return int(new_list(other_owner)["id"])


def test_owner_gets_a_mail_about_each_limited_key(
    stack: Stack, owner: Owner, client: httpx2.Client, list_id: int
) -> None:
    created = [
        create_limited_key(stack, owner, list_id, list_id)
        for _ in range(KEYS_ABOVE_THE_HOURLY_LIMIT)
    ]
    assert {(*key["scopes"], *key["list_ids"]) for key in created} == {("delivery", list_id)}
    listed = {each["id"]: each["list_ids"] for each in data(client.get("/apikeys"))}
    assert [listed[key["id"]] for key in created] == [[list_id]] * KEYS_ABOVE_THE_HOURLY_LIMIT
    assert list(listed.values()).count(None) == 1

    def find_texts() -> list[str]:
        mails = [each for each in stack.mails(owner.email) if each["subject"] == MAIL_SUBJECT]
        return [each["text"] for each in mails] if len(mails) == len(created) else []

    texts = eventually(find_texts, what="a mail about each key")
    assert all(any(key["last_four"] in text for text in texts) for key in created)


def test_limited_key_exports_only_the_rosters_of_its_lists(
    *,
    stack: Stack,
    owner: Owner,
    client: httpx2.Client,
    reader: Reader,
    list_id: int,
    foreign_list_id: int,
) -> None:
    second_list_id, unnamed_list_id = (new_list(client)["id"] for _ in range(2))
    reader.joins(list_id)
    key = create_limited_key(stack, owner, list_id, second_list_id)
    with stack.client(key["key"]) as sending_program:
        job = data(export(sending_program, list_id, "delivery"))
        assert [row["email"] for row in fetch_rows(job["result"]["url"])] == [reader.email]
        assert data(export(sending_program, second_list_id, "delivery"))["result"]["rows"] == 0
        for other_id in (unnamed_list_id, foreign_list_id):
            problem(export(sending_program, other_id, "delivery"), 403, "auth.insufficient_scope")
        problem(export(sending_program, list_id, "members"), 403, "auth.insufficient_scope")
        members = sending_program.get(f"/lists/{list_id}/subscriptions")
        problem(members, 403, "auth.insufficient_scope")
    events = data(client.get("/users/me/security-events"))["items"]
    exports = [each for each in events if each["type"] == "export.created"]
    assert [each["detail"]["list_id"] for each in exports] == [second_list_id, list_id]
    assert {each["credential"]["id"] for each in exports} == {key["id"]}


def test_limited_key_exports_no_archived_list_and_no_list_of_a_new_owner(
    stack: Stack, owner: Owner, client: httpx2.Client, list_id: int
) -> None:
    moved_list_id = new_list(client)["id"]
    key = create_limited_key(stack, owner, list_id, moved_list_id)
    data(client.delete(f"/lists/{list_id}"))
    new_owner = stack.create_owner()
    stack.query("UPDATE lists SET user_id = %s WHERE id = %s", new_owner.user_id, moved_list_id)
    with stack.client(key["key"]) as sending_program:
        problem(export(sending_program, list_id, "delivery"), 404, "list.not_found")
        problem(export(sending_program, moved_list_id, "delivery"), 403, "auth.insufficient_scope")


def test_limited_key_needs_open_lists_of_its_owner(
    stack: Stack, owner: Owner, client: httpx2.Client, list_id: int, foreign_list_id: int
) -> None:
    archived_list_id = new_list(client)["id"]
    data(client.delete(f"/lists/{archived_list_id}"))
    for wrong_id in (foreign_list_id, archived_list_id, 2**53 - 1):
        reply = request_key(stack, owner, scopes=["delivery"], list_ids=[list_id, wrong_id])
        problem(reply, 404, "list.not_found")
    assert len(data(client.get("/apikeys"))) == 1


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({"scopes": ["delivery"]}, 403, "auth.insufficient_scope"),
        ({"scopes": ["sender", "delivery"], "list_ids": None}, 403, "auth.insufficient_scope"),
        ({"scopes": ["delivery"], "list_ids": []}, 422, "body.invalid"),
        ({"scopes": ["sender"], "list_ids": [1]}, 422, "api_key.list_ids"),
        ({"list_ids": [1]}, 422, "api_key.list_ids"),
    ],
)
def test_scope_delivery_and_list_ids_are_only_accepted_together(
    stack: Stack, owner: Owner, fields: dict[str, Any], status: int, code: str
) -> None:
    error = problem(request_key(stack, owner, **fields), status, code)
    assert "list_ids" in error["message"]


def test_only_a_session_with_a_recent_login_can_create_a_limited_key(
    stack: Stack, owner: Owner, client: httpx2.Client, list_id: int
) -> None:
    body = {"name": "n", "scopes": ["delivery"], "list_ids": [list_id]}
    limited_key = create_limited_key(stack, owner, list_id)["key"]
    program = register(stack)
    person = log_in(stack, owner)
    with person.browser:
        access_token = program.tokens(person, "attachment")["access_token"]
    for credential in (owner.key, limited_key, access_token):
        with stack.client(credential) as caller:
            problem(caller.post("/apikeys", json=body), 403, "auth.restricted_credential")
    with new_visitor(stack) as visitor:
        visitor.enter(owner.email)
        age_logins(stack, owner.email, 15)
        reply = visitor.client.post("/apikeys", json=body, headers={"Origin": stack.api_url})
    problem(reply, 403, "auth.login_again")
    assert len(data(client.get("/apikeys"))) == 2


def test_limited_key_sees_only_the_jobs_of_its_own_rosters(
    stack: Stack, owner: Owner, list_id: int
) -> None:
    own_key, other_key = (create_limited_key(stack, owner, list_id)["key"] for _ in range(2))
    unlimited_key = stack.create_key(owner.user_id, Scope.DELIVERY)
    with (
        stack.client(own_key) as own_program,
        stack.client(other_key) as other_program,
        stack.client(unlimited_key) as unlimited_program,
    ):
        own_job = data(export(own_program, list_id, "delivery"))
        other_jobs = [
            data(export(program, list_id, "delivery"))
            for program in (other_program, unlimited_program)
        ]
        for job in other_jobs:
            path = f"/jobs/{job['id']}"
            for method, suffix in (
                ("GET", ""),
                ("DELETE", ""),
                ("POST", "/retry"),
                ("GET", "/events"),
            ):
                reply = own_program.request(method, path + suffix)
                problem(reply, 403, "auth.insufficient_scope")
        listed_ids = [each["id"] for each in data(own_program.get("/jobs"))["items"]]
        assert listed_ids == [own_job["id"]]
        fetch_rows(data(own_program.get(f"/jobs/{own_job['id']}"))["result"]["url"])
        problem(own_program.post(f"/jobs/{own_job['id']}/retry"), 409, "job.not_retryable")
        all_ids = {each["id"] for each in data(unlimited_program.get("/jobs"))["items"]}
        assert all_ids == {own_job["id"], *(each["id"] for each in other_jobs)}
    with stack.client(owner.key) as client:
        problem(client.get(f"/jobs/{own_job['id']}"), 403, "auth.insufficient_scope")


def test_cancelled_roster_of_a_limited_key_is_not_retried(
    stack_without_workers: Stack,
    owner_without_workers: Owner,
    client_without_workers: httpx2.Client,
) -> None:
    """A retry would export the list even if the key may no longer export it."""
    list_id = new_list(client_without_workers)["id"]
    key = create_limited_key(stack_without_workers, owner_without_workers, list_id)
    with stack_without_workers.client(key["key"]) as sending_program:
        job = data(export(sending_program, list_id, "delivery", Prefer="wait=0"), 202)
        assert data(sending_program.delete(f"/jobs/{job['id']}")) == 1
        problem(sending_program.post(f"/jobs/{job['id']}/retry"), 409, "job.not_retryable")


def test_limited_key_creates_and_serves_no_sender_for_any_list(
    stack: Stack, owner: Owner, list_id: int
) -> None:
    limited_key = create_limited_key(stack, owner, list_id, more_scopes=(Scope.SENDER,))["key"]
    unlimited_key = stack.create_key(owner.user_id, Scope.SENDER, Scope.DELIVERY)
    with stack.client(unlimited_key) as operator_program:
        sender = new_sender(operator_program, any_list=True)
    with stack.client(limited_key) as sending_program:
        body = {"name": "x", "provider": "generic", "any_list": True}
        problem(sending_program.post("/senders", json=body), 403, "sender.needs_delivery")
        rotation = sending_program.post(f"/senders/{sender['id']}/rotate")
        problem(rotation, 403, "sender.needs_delivery")
        reports = {"type": "delivery.reports", "data": {"reports": []}}
        reply = sending_program.post(f"/senders/{sender['id']}/events", json=reports)
        problem(reply, 401, "sender.signature_invalid")
        # The scope ``sender`` covers all lists of the account.
        assert new_sender(sending_program)["list_ids"] is None


def test_operator_forbids_the_limited_keys_of_owners_but_not_their_own(
    stack: Stack, owner: Owner, list_id: int
) -> None:
    owners_key = create_limited_key(stack, owner, list_id)["key"]
    operators_key = run_json_command(
        *(stack, "keys", "create", owner.email, "--name", "n", "--scope", "delivery"),
        *("--list", str(list_id)),
    )["key"]
    with stack.run_second_api(PRESSROOM_OWNERS_SEND="false") as api:
        reply = request_key(api, owner, scopes=["delivery"], list_ids=[list_id])
        problem(reply, 403, "auth.delivery_forbidden")
        with api.client(owners_key) as sending_program:
            problem(export(sending_program, list_id, "delivery"), 403, "auth.delivery_forbidden")
        with api.client(operators_key) as operator_program:
            data(export(operator_program, list_id, "delivery"))


def test_operator_creates_a_key_that_is_limited_to_lists_of_any_owner(
    stack: Stack, owner: Owner, mailing_list: dict[str, Any], foreign_list_id: int
) -> None:
    command = ("keys", "create", owner.email, "--name", "n")
    lists = ("--list", mailing_list["slug"], "--list", str(foreign_list_id))
    key = run_json_command(stack, *command, "--scope", "delivery", *lists)
    assert key["list_ids"] == sorted([mailing_list["id"], foreign_list_id])
    with stack.client(key["key"]) as sending_program, stack.client(owner.key) as client:
        data(export(sending_program, mailing_list["id"], "delivery"))
        data(export(sending_program, foreign_list_id, "delivery"))
        other_list_id = new_list(client)["id"]
        problem(export(sending_program, other_list_id, "delivery"), 403, "auth.insufficient_scope")
    with new_visitor(stack) as visitor:
        assert key["last_four"] in visitor.mailed(owner.email, MAIL_SUBJECT)
    process = pressroom(stack, *command, *lists)
    assert process.returncode != 0
    assert "limits only the scope delivery" in process.stderr


def test_rosters_of_an_owners_key_count_against_the_quotas_of_the_plan(
    stack_without_workers: Stack,
) -> None:
    stack = stack_without_workers
    owner = stack.create_owner(plan=Plan.FREE)
    with stack.client(owner.key) as client:
        list_id = new_list(client)["id"]
    key = create_limited_key(stack, owner, list_id)["key"]
    with stack.client(key) as sending_program:
        for _ in range(3):
            data(export(sending_program, list_id, "delivery", Prefer="wait=0"), 202)
        reply = export(sending_program, list_id, "delivery", Prefer="wait=0")
        assert "unfinished_jobs" in problem(reply, 403, "quota.exceeded")["message"]
        for job in data(sending_program.get("/jobs"))["items"]:
            assert data(sending_program.delete(f"/jobs/{job['id']}")) == 1
        stack.query("UPDATE exports SET size = 2^40 WHERE user_id = %s", owner.user_id)
        reply = export(sending_program, list_id, "delivery", Prefer="wait=0")
        assert "storage_mb" in problem(reply, 403, "quota.exceeded")["message"]
