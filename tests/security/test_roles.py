"""Tests that each role permits exactly its calls, and that teammates see only the named account.

The expected permissions are written by hand, so that a wrong table in the product fails a test.
"""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest

from devstack.harness.stack import Stack
from tests.support.commands.running import run_json_command
from tests.support.people.oauth import open_browser
from tests.support.security import world as worlds
from tests.support.security.calls import CALLS, CALLS_FOR_EVERYBODY
from tests.support.security.permissions import (
    PERMISSIONS,
    PERMISSIONS_BY_EVENT_TYPE,
    PERMISSIONS_BY_JOB_KIND,
)
from tests.support.security.world import World, await_jobs, digest_owned_rows
from tests.support.stack.maintenance import resting_maintenance

# The permissions of calls whose permission depends on the kind of the record. The job is an import.
KIND_PERMISSIONS = {
    "GET /events": "any",
    "GET /jobs": "any",
    "GET /jobs/{job_id}": "figures",
    "GET /jobs/{job_id}/events": "figures",
    "POST /jobs/{job_id}/retry": "edit",
    "DELETE /jobs/{job_id}": "edit",
    "POST /lists/{list_id}/exports": "export",
}


@dataclass
class Team:
    """Two accounts. The owner of ``own`` has a role in the account of ``world``."""

    world: World
    own: World
    browser: httpx2.Client

    def set_role(self, role: str) -> None:
        stack = self.world.stack
        account, email = str(self.world.owner.user_id), self.own.owner.email
        if any(
            each["email"] == email for each in run_json_command(stack, "accounts", "show", account)
        ):
            run_json_command(stack, "accounts", "remove", account, email)
        run_json_command(stack, "accounts", "add", account, email, "--role", role)

    def send(self, operation: str, *, ids: World, account: World | None) -> httpx2.Response:
        headers = {} if account is None else {"Pressroom-Account": str(account.owner.user_id)}
        values = ids.values | {"as_whom": "teammate"}
        return CALLS[operation].send(self.browser, operation, values, **headers)


@pytest.fixture(scope="module")
def team(stack: Stack) -> Iterator[Team]:
    world, own = worlds.build(stack), worlds.build(stack)
    for each in (world, own):
        each.values["provider"] = "stockphoto"
    browser = open_browser(stack, own.owner)
    await_jobs(stack)
    with closing(world.client), closing(own.client), browser, resting_maintenance(stack):
        yield Team(world, own, browser)


def find_permission(operation: str) -> str:
    permission = CALLS[operation].permission
    return KIND_PERMISSIONS[operation] if permission == "kind" else permission


@pytest.mark.parametrize("role", PERMISSIONS)
def test_role_permits_exactly_its_calls(team: Team, role: str) -> None:
    team.set_role(role)
    before = digest_owned_rows(team.world)
    permitted = PERMISSIONS[role] | {"none"}
    for operation, call in CALLS.items():
        permission = find_permission(operation)
        changes_data = not operation.startswith("GET ") or permission == "composer"
        if permission in permitted and changes_data:
            continue
        reply = team.send(operation, ids=team.world, account=team.world)
        if permission not in permitted:
            assert reply.status_code == 403, (operation, reply.text)
            problem = reply.json()
            assert problem["code"] == "team.not_permitted", operation
            assert (problem["permission"], problem["role"]) == (permission, role), operation
        elif permission != "none":
            assert reply.status_code == call.own, (operation, reply.text)
            assert reply.headers["Pressroom-Account"] == str(team.world.owner.user_id)
        if role == "analyst":
            _require_no_member(team.world, operation, reply)
    assert digest_owned_rows(team.world) == before


@pytest.mark.parametrize("role", PERMISSIONS)
def test_role_sees_exactly_the_jobs_of_its_kinds(team: Team, role: str) -> None:
    team.set_role(role)
    account = {"Pressroom-Account": str(team.world.owner.user_id)}
    jobs = team.world.client.get("/jobs", params={"limit": 100}).json()["data"]["items"]
    visible = {
        job["id"] for job in jobs if PERMISSIONS_BY_JOB_KIND[job["kind"]][0] in PERMISSIONS[role]
    }
    listed = team.browser.get("/jobs", params={"limit": 100}, headers=account).json()["data"]
    assert {job["id"] for job in listed["items"]} == visible
    for job in jobs:
        reply = team.browser.get(f"/jobs/{job['id']}", headers=account)
        assert reply.status_code == (200 if job["id"] in visible else 403), reply.text
    # The world has jobs that each role except the admin may not see.
    assert len(visible) < len(jobs) or role == "admin"


@pytest.mark.parametrize("role", PERMISSIONS)
def test_role_sees_exactly_the_events_of_its_types(team: Team, role: str) -> None:
    team.set_role(role)
    account = {"Pressroom-Account": str(team.world.owner.user_id)}
    for kind, permission in PERMISSIONS_BY_EVENT_TYPE.items():
        reply = team.browser.get("/events", params={"type": kind}, headers=account)
        expected = 200 if permission in PERMISSIONS[role] else 403
        assert reply.status_code == expected, (kind, reply.text)
    page = team.browser.get("/events", params={"limit": 200}, headers=account).json()["data"]
    shown = {PERMISSIONS_BY_EVENT_TYPE[event["type"]] for event in page["items"]}
    assert shown <= PERMISSIONS[role]


@pytest.mark.parametrize(
    ("role", "hidden"),
    [
        ("analyst", {"filter", "errors_url", "url"}),
        ("editor", {"url"}),
        ("admin", set()),
    ],
)
def test_parts_that_need_more_permissions_are_null(team: Team, role: str, hidden: set[str]) -> None:
    team.set_role(role)
    account = {"Pressroom-Account": str(team.world.owner.user_id)}
    segments = f"/lists/{team.world.values['list_id']}/segments"
    jobs = team.world.client.get("/jobs", params={"limit": 100}).json()["data"]["items"]
    [export_job_id] = [job["id"] for job in jobs if job["kind"] == "export.members"]

    def read(path: str) -> Any:
        return team.browser.get(path, headers=account).json()["data"]

    import_id = int(team.world.values["import_id"])
    [listed] = [each for each in read("/imports")["items"] if each["id"] == import_id]
    records = {
        "filter": [
            read(f"{segments}/{team.world.values['segment_id']}"),
            *read(segments)["items"],
        ],
        "errors_url": [
            listed,
            read(f"/imports/{import_id}"),
            read(f"/jobs/{team.world.values['job_id']}")["result"],
        ],
        "url": [read(f"/jobs/{export_job_id}")["result"]],
    }
    shown = {name: {each[name] is not None for each in records[name]} for name in records}
    assert shown == {name: {name not in hidden} for name in records}


def _require_no_member(world: World, operation: str, reply: httpx2.Response) -> None:
    """``world`` marks all addresses, names and field values of its members."""
    for text in (f"member0.{world.mark}", f"first.{world.mark}", f"@{world.mark}"):
        assert text not in reply.text, operation


def test_ids_of_one_account_are_unknown_in_the_other(team: Team) -> None:
    team.set_role("analyst")
    before = digest_owned_rows(team.world)
    for operation, call in CALLS.items():
        names_record = "{" in operation or call.query
        permission = find_permission(operation)
        if permission == "none" or operation in CALLS_FOR_EVERYBODY or not names_record:
            continue
        reply = team.send(operation, ids=team.world, account=None)
        assert reply.status_code == call.others, (operation, reply.text)
        assert reply.headers["Pressroom-Account"] == str(team.own.owner.user_id)
    assert digest_owned_rows(team.world) == before


def test_teammate_reaches_no_id_of_the_own_account_through_the_other(team: Team) -> None:
    team.set_role("analyst")
    before = [digest_owned_rows(each) for each in (team.own, team.world)]
    for operation, call in CALLS.items():
        permission = find_permission(operation)
        if permission == "none" or operation in CALLS_FOR_EVERYBODY:
            continue
        reply = team.send(operation, ids=team.own, account=team.world)
        is_checked_later = permission in PERMISSIONS["analyst"] or "{job_id}" in operation
        expected = call.others if is_checked_later else 403
        assert reply.status_code == expected, (operation, reply.text)
        assert team.own.mark not in reply.text or operation == "GET /lists/{list_id}", operation
    assert [digest_owned_rows(each) for each in (team.own, team.world)] == before


def test_removed_teammate_can_make_no_call(team: Team) -> None:
    team.set_role("admin")
    account, email = str(team.world.owner.user_id), team.own.owner.email
    run_json_command(team.world.stack, "accounts", "remove", account, email)
    before = digest_owned_rows(team.world)
    for operation in CALLS:
        if find_permission(operation) == "none" or operation in CALLS_FOR_EVERYBODY:
            continue
        reply = team.send(operation, ids=team.world, account=team.world)
        assert (reply.status_code, reply.json()["code"]) == (404, "account.not_found"), operation
    assert digest_owned_rows(team.world) == before
