"""Tests of accounts with several people."""

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from devstack.harness.stack import Owner, Stack
from tests.support.commands.running import pressroom, require_command_error, run_json_command
from tests.support.lists.subscribers import new_list
from tests.support.people.oauth import log_in, open_browser
from tests.support.people.visiting import new_account

ACCOUNT = "Pressroom-Account"


@pytest.fixture
def teammate(stack: Stack) -> Owner:
    return stack.create_owner()


@pytest.fixture
def team_browser(stack: Stack, owner: Owner, teammate: Owner) -> Iterator[httpx2.Client]:
    """The browser of ``teammate``, who is an editor in the account of ``owner``."""
    add(stack, owner, teammate.email, "editor")
    with open_browser(stack, teammate) as browser:
        yield browser


def add(stack: Stack, owner: Owner, email: str, role: str) -> Any:
    return run_json_command(stack, "accounts", "add", str(owner.user_id), email, "--role", role)


def require_problem(reply: httpx2.Response, status: int, code: str) -> None:
    assert (reply.status_code, reply.json()["code"]) == (status, code), reply.text


def test_account_with_one_person_belongs_to_the_person(
    stack: Stack, owner: Owner, client: httpx2.Client
) -> None:
    with log_in(stack, owner).browser as browser:
        accounts = browser.get("/accounts").json()["data"]
        me = browser.get("/users/me").json()["data"]
    name = me["name"]
    assert accounts == [{"id": owner.user_id, "name": name, "role": "owner"}]
    assert me["account"] == accounts[0]
    by_key = {"id": owner.user_id, "name": name, "role": None}
    assert client.get("/accounts").json()["data"] == [by_key]
    assert client.get("/users/me").json()["data"]["account"] == by_key
    [shown] = run_json_command(stack, "accounts", "show", owner.email)
    assert (shown["user_id"], shown["role"]) == (owner.user_id, "owner")


def test_session_acts_in_the_account_that_the_request_names(
    owner: Owner, client: httpx2.Client, teammate: Owner, team_browser: httpx2.Client
) -> None:
    list_id = new_list(client)["id"]
    roles = {
        account["id"]: account["role"] for account in team_browser.get("/accounts").json()["data"]
    }
    assert roles == {owner.user_id: "editor", teammate.user_id: "owner"}

    reply = team_browser.get("/lists", headers={ACCOUNT: str(owner.user_id)})
    assert [each["id"] for each in reply.json()["data"]["items"]] == [list_id]
    assert reply.headers[ACCOUNT] == str(owner.user_id)
    without = team_browser.get("/lists")
    assert without.json()["data"]["items"] == []
    assert without.headers[ACCOUNT] == str(teammate.user_id)

    me = team_browser.get("/users/me", headers={ACCOUNT: str(owner.user_id)}).json()["data"]
    assert (me["id"], me["email"]) == (teammate.user_id, teammate.email)
    assert (me["account"]["id"], me["account"]["role"]) == (owner.user_id, "editor")


@pytest.mark.parametrize("number", ["1", "0", "x", "-1", "1" * 40, "", "٣"])
def test_account_that_the_person_is_not_in_is_unknown(
    team_browser: httpx2.Client, number: str
) -> None:
    reply = team_browser.get("/lists", headers=[(ACCOUNT.encode(), number.encode())])
    require_problem(reply, 404, "account.not_found")


def test_key_acts_only_in_its_account(
    owner: Owner, teammate: Owner, team_browser: httpx2.Client, stack: Stack
) -> None:
    with stack.client(owner.key) as client:
        own = client.get("/lists", headers={ACCOUNT: str(owner.user_id)})
        assert (own.status_code, own.headers[ACCOUNT]) == (200, str(owner.user_id))
        other = client.get("/lists", headers={ACCOUNT: str(teammate.user_id)})
        require_problem(other, 403, "account.mismatch")
        # The route of consume accepts cached keys.
        for _ in range(2):
            spent = client.post(
                "/auxilia/credits/consume",
                json={"amount_credit": 1, "source_id": "team"},
                headers={ACCOUNT: str(teammate.user_id)},
            )
            require_problem(spent, 403, "account.mismatch")


def test_key_and_cookie_agree_in_the_account_of_a_team(
    stack: Stack, owner: Owner, teammate: Owner, team_browser: httpx2.Client
) -> None:
    bearer = {"Authorization": f"Bearer {owner.key}"}
    reply = team_browser.get("/lists", headers=bearer)
    assert (reply.status_code, reply.headers[ACCOUNT]) == (200, str(owner.user_id))
    run_json_command(stack, "accounts", "remove", owner.email, teammate.email)
    require_problem(team_browser.get("/lists", headers=bearer), 401, "auth.credentials_disagree")


def test_browsers_may_read_the_account_of_a_response(client: httpx2.Client) -> None:
    reply = client.get("/lists", headers={"Origin": "https://app.example"})
    assert ACCOUNT in reply.headers["access-control-expose-headers"].split(", ")


def test_role_changes_with_the_next_request(
    stack: Stack, owner: Owner, teammate: Owner, team_browser: httpx2.Client
) -> None:
    account = {ACCOUNT: str(owner.user_id)}
    new = team_browser.post("/lists", json={"title": "A", "slug": "team-a"}, headers=account)
    assert new.status_code == 200, new.text
    run_json_command(stack, "accounts", "remove", owner.email, teammate.email)
    add(stack, owner, teammate.email, "analyst")
    reply = team_browser.post("/lists", json={"title": "B", "slug": "team-b"}, headers=account)
    require_problem(reply, 403, "team.not_permitted")
    assert reply.json()["permission"] == "edit"
    run_json_command(stack, "accounts", "remove", owner.email, teammate.email)
    require_problem(team_browser.get("/lists", headers=account), 404, "account.not_found")


def test_two_people_can_use_the_same_idempotency_key(
    stack: Stack, owner: Owner, teammate: Owner, client: httpx2.Client, team_browser: httpx2.Client
) -> None:
    list_id = new_list(client)["id"]
    headers = {"Idempotency-Key": "0123456789abcdef"}
    path = f"/auxilia/subscriptions/{list_id}/members/add"

    def add_member(browser: httpx2.Client, email: str) -> httpx2.Response:
        return browser.post(
            path,
            json={"members": [{"email": email}]},
            headers={**headers, ACCOUNT: str(owner.user_id)},
        )

    with open_browser(stack, owner) as own_browser:
        first = add_member(own_browser, "first@team.example")
        second = add_member(team_browser, "second@team.example")
    assert first.status_code == second.status_code == 200, second.text
    repeated = add_member(team_browser, "second@team.example")
    assert repeated.headers["Idempotent-Replayed"] == "true"


def test_commands_manage_the_team_of_an_account(
    stack: Stack, owner: Owner, teammate: Owner
) -> None:
    added = add(stack, owner, teammate.email, "admin")
    assert (added["user_id"], added["role"]) == (teammate.user_id, "admin")
    team = run_json_command(stack, "accounts", "show", owner.email)
    assert [(each["email"], each["role"]) for each in team] == [
        (owner.email, "owner"),
        (teammate.email, "admin"),
    ]
    listed = {each["id"]: each for each in run_json_command(stack, "accounts", "list")}
    assert listed[owner.user_id] == {"id": owner.user_id, "owner": owner.email, "people": 2}

    add_again = ("accounts", "add", owner.email, teammate.email, "--role", "editor")
    require_command_error(stack, "team.already", *add_again)
    remove_owner = ("accounts", "remove", owner.email, owner.email)
    require_command_error(stack, "team.owner_fixed", *remove_owner)
    run_json_command(stack, "accounts", "remove", owner.email, teammate.email)
    remove_again = ("accounts", "remove", owner.email, teammate.email)
    require_command_error(stack, "team.not_found", *remove_again)
    assert owner.user_id not in {each["id"] for each in run_json_command(stack, "accounts", "list")}
    unknown = ("accounts", "add", owner.email, "nobody@team.example", "--role", "editor")
    require_command_error(stack, "user.not_found", *unknown)
    as_owner = pressroom(stack, "accounts", "add", owner.email, teammate.email, "--role", "owner")
    assert as_owner.returncode == 2


def test_reader_without_login_joins_no_team(stack: Stack, owner: Owner) -> None:
    reader = new_account(stack, password=None)
    require_command_error(
        stack, "user.not_found", "accounts", "add", owner.email, reader, "--role", "editor"
    )


def test_person_is_on_at_most_fifty_teams(stack: Stack, owner: Owner, teammate: Owner) -> None:
    stack.query(
        "WITH owners AS ("
        "  INSERT INTO users (id, email) SELECT %s + n, 'team' || n || '.' || %s || '@x.example'"
        "  FROM generate_series(1, 50) AS n RETURNING id"
        ") INSERT INTO teammates (account_id, person_id, role)"
        " SELECT id, id, 'owner' FROM owners UNION ALL SELECT id, %s, 'editor' FROM owners",
        teammate.user_id // 2,
        teammate.user_id,
        teammate.user_id,
    )
    add_once_more = ("accounts", "add", owner.email, teammate.email, "--role", "editor")
    require_command_error(stack, "team.too_many", *add_once_more)


def test_erasure_ends_the_teams_of_a_person(stack: Stack, owner: Owner, teammate: Owner) -> None:
    add(stack, owner, teammate.email, "admin")
    require_command_error(stack, "user.owns_team", "users", "erase", owner.email, "--yes")
    run_json_command(stack, "users", "erase", teammate.email, "--yes")
    team = run_json_command(stack, "accounts", "show", owner.email)
    assert [each["email"] for each in team] == [owner.email]
    run_json_command(stack, "users", "erase", owner.email, "--yes")
    assert stack.query("SELECT 1 FROM teammates WHERE account_id = %s", owner.user_id) == []


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM teammates WHERE account_id = %s AND role = 'owner'",
        "UPDATE teammates SET role = 'admin' WHERE account_id = %s AND role = 'owner'",
        "UPDATE teammates SET role = 'owner' WHERE account_id = %s AND role = 'admin'",
    ],
)
def test_database_keeps_exactly_one_owner(
    stack: Stack, owner: Owner, teammate: Owner, change: str
) -> None:
    add(stack, owner, teammate.email, "admin")
    with pytest.raises(Exception, match="owner"):
        stack.query(change, owner.user_id)
