"""What outlasts a session needs a recent login; keys and tokens are not asked for one."""

import httpx2
import pytest

from api.auth.page_sessions import MAX_MEMBERS_OF_SESSION, MAX_PAGES_AN_HOUR
from tests.consoles import at_console, forms_of, shown
from tests.contract.replies import data, problem, send
from tests.contract.subscribers import fill, new_list
from tests.contract.subscribers import new_address as new_reader
from tests.oauth import Person, fields_of, register
from tests.pictures import photo
from tests.stack import Owner, Stack
from tests.visiting import (
    PASSWORD,
    Visitor,
    a_visitor,
    new_account,
    user_id_of,
)

EVERYBODY = {"field": "email", "exists": True}


def age(stack: Stack, email: str, minutes: int) -> None:
    stack.query(
        "UPDATE user_sessions SET logged_in_at = now() - make_interval(mins => %s)"
        " WHERE user_id = %s",
        minutes,
        user_id_of(stack, email),
    )


def test_a_session_makes_removes_and_gives_away_within_a_quarter_of_an_hour_of_the_login(
    stack: Stack, person: Visitor, email: str
) -> None:
    origin = {"Origin": stack.api_url}
    with stack.client(stack.new_key(user_id_of(stack, email))) as program:
        list_id = new_list(program)["id"]
        hash_id = data(send(program, photo(), "a.jpg", encrypted="1"))["hash_id"]
        bulk = f"/lists/{list_id}/members/bulk"
        removal = {"filter": EVERYBODY}
        hooks = "/webhook-endpoints"
        asked = {"url": "http://127.0.0.1:9/hook", "types": ["subscription.created"]}
        hook = f"{hooks}/{data(program.post(hooks, json=asked))['id']}"
        actions = (
            ("POST", "/apikeys", {"name": "k"}),
            ("POST", f"/lists/{list_id}/exports", {"kind": "members"}),
            ("POST", hooks, asked),
            ("PATCH", hook, {"url": f"{asked['url']}/2"}),
            ("POST", f"{hook}/rotate", None),
            ("POST", bulk, removal | {"action": "remove"}),
            ("POST", f"/attachments/{hash_id}/links", {"expires_in": 3600}),
            ("DELETE", f"/lists/{list_id}/traces", None),
        )
        age(stack, email, 15)
        for method, path, body in actions:
            reply = person.client.request(method, path, json=body, headers=origin)
            problem(reply, 403, "auth.login_again")
        assert {each["name"] for each in data(person.get("/apikeys"))} == {"test"}
        # What removes nobody is not asked for it, and a key never.
        dry_run = person.client.post(
            bulk, json=removal | {"action": "remove"}, params={"dry_run": 1}, headers=origin
        )
        data(dry_run)
        data(person.client.post(bulk, json=removal | {"action": "email_off"}, headers=origin), 202)
        for method, path, body in actions:
            data(program.request(method, path, json=body), 200, 202)
        age(stack, email, 14)
        for method, path, body in actions:
            data(person.client.request(method, path, json=body, headers=origin), 200, 202)


def test_a_console_with_an_old_login_asks_for_it_and_keeps_what_was_chosen(stack: Stack) -> None:
    with at_console(stack) as owner:
        list_id = new_list(owner.api)["id"]
        age(stack, owner.owner.email, 15)
        path = f"/console/lists/{list_id}/bulk-actions/new"
        reply = owner.send(path, action="remove")
        assert "This needs a login of the last 15 minutes" in shown(reply, 403)
        assert forms_of(reply)[0][1]["action"] == "remove"
        assert "The bulk action has started." in owner.do(path, action="email_off")


def test_a_session_reads_fewer_members_at_a_time_and_many_pages_are_an_event(
    stack: Stack, person: Visitor, email: str
) -> None:
    with stack.client(stack.new_key(user_id_of(stack, email))) as program:
        list_id = new_list(program)["id"]
        fill(stack, list_id, [new_reader() for _ in range(MAX_MEMBERS_OF_SESSION + 1)])
        path, search = f"/lists/{list_id}/subscriptions", f"/lists/{list_id}/members/search"
        body = {"filter": EVERYBODY, "limit": 1000}
        origin = {"Origin": stack.api_url}

        def listed(by: httpx2.Client, **more: str) -> httpx2.Response:
            return by.get(path, params={"limit": "1000", **more})

        def searched(by: httpx2.Client, **more: str) -> httpx2.Response:
            return by.post(search, json={**body, **more}, headers=origin)

        for read in (listed, searched):
            assert len(data(read(program))["items"]) == MAX_MEMBERS_OF_SESSION + 1
            first = data(read(person.client))
            assert len(first["items"]) == first["pagination"]["limit"] == MAX_MEMBERS_OF_SESSION
            cursor = first["pagination"]["next_cursor"]
            assert len(data(read(person.client, cursor=cursor))["items"]) == 1

        def noted() -> list[dict[str, object]]:
            found = data(program.get("/users/me/security-events"))["items"]
            return [each["detail"] for each in found if each["type"] == "members.read"]

        # Whichever windows of an hour the pages fall into: a program's don't count.
        for _ in range(MAX_PAGES_AN_HOUR - 4):
            data(program.get(path, params={"limit": 1}))
            data(person.get(path, limit="1"))
        assert noted() == []
        for _ in range(2):
            assert person.get(f"/console/lists/{list_id}/members").status_code == 200
        assert noted() == [{"pages": MAX_PAGES_AN_HOUR}]


def test_a_session_with_an_old_login_gets_no_file_of_an_export_and_retries_none(
    stack: Stack, person: Visitor, email: str
) -> None:
    origin = {"Origin": stack.api_url}
    with stack.client(stack.new_key(user_id_of(stack, email))) as program:
        list_id = new_list(program)["id"]
        job = data(program.post(f"/lists/{list_id}/exports", json={"kind": "members"}))
        path = f"/jobs/{job['id']}"
        assert data(person.get(path))["result"]["url"]
        age(stack, email, 15)
        for shown in (data(person.get(path)), data(person.get("/jobs"))["items"][0]):
            assert shown["result"] == {**job["result"], "url": None}
        assert '"url":null' in person.get(f"{path}/events").text
        assert data(program.get(path))["result"]["url"]
        retry = person.client.post(f"{path}/retry", headers=origin)
        problem(retry, 403, "auth.login_again")
        problem(program.post(f"{path}/retry"), 409, "job.not_retryable")


@pytest.mark.parametrize(
    "path",
    [
        "/account/password",
        "/account/email",
        "/console/developers/keys/new",
        "/account/email/confirm?token=x",
    ],
)
def test_pages_ask_once_more_and_go_on_where_the_person_was(
    stack: Stack, person: Visitor, email: str, path: str
) -> None:
    fresh = person.get(path).status_code
    age(stack, email, 15)
    for reply in (
        person.get(path),
        person.client.post(path, data={"csrf_token": person.csrf_token()}),
    ):
        assert reply.status_code == 303
        asked = reply.headers["location"].removeprefix(stack.api_url)
        assert asked.startswith("/login?again=yes&next=")
        shown = person.get(asked)
        assert email in shown.text
        assert "show once more that it is you" in shown.text
    wrong = person.fill_in(asked, email=email, password="not the password")
    assert wrong.status_code == 403
    assert "show once more that it is you" in wrong.text
    before = person.cookie
    passed = person.fill_in(asked, email=email, password=PASSWORD)
    assert passed.headers["location"] == stack.api_url + path
    assert person.cookie != before
    assert person.get(path).status_code == fresh


def test_consent_asks_once_more_and_comes_back_to_the_program(
    stack: Stack, person: Visitor, email: str
) -> None:
    program = register(stack)
    owner = Person(stack, Owner(user_id_of(stack, email), email, ""), person.client)
    path = program.request("credit.read")
    form = {"csrf_token": owner.csrf_token(path), "decision": "allow", "scope.credit.read": "on"}
    age(stack, email, 15)
    for reply in (person.client.get(path), person.client.post(path, data=form)):
        assert reply.status_code == 303
        asked = reply.headers["location"]
        assert asked.startswith(f"{stack.api_url}/login?again=yes&next=")
    assert stack.query("SELECT 1 FROM oauth_grants WHERE client_id = %s", program.client_id) == []
    asked = asked.removeprefix(stack.api_url)
    passed = person.fill_in(asked, email=email, password=PASSWORD)
    assert passed.headers["location"] == stack.api_url + path
    given = owner.answer(path, "credit.read")
    assert "code" in fields_of(given.headers["location"])


def test_a_mail_tells_of_each_new_key_whoever_made_it(
    stack: Stack, person: Visitor, email: str
) -> None:
    origin = {"Origin": stack.api_url}
    name = "look at https://evil.example"
    first = data(person.client.post("/apikeys", json={"name": name}, headers=origin))
    told = person.mailed(email, "Your account has a new API key")
    assert first["last_four"] in told
    assert first["key"] not in told
    assert "evil" not in told
    with stack.client(first["key"]) as program:
        second = data(program.post("/apikeys", json={"name": "second"}))
    assert second["last_four"] in person.mailed(email, "Your account has a new API key", number=2)


def test_a_mail_tells_of_a_new_program_and_of_more_scopes(
    stack: Stack, person: Visitor, email: str
) -> None:
    program = register(stack, name="Ledger reader")
    owner = Person(stack, Owner(user_id_of(stack, email), email, ""), person.client)
    subject = "A program has access to your account"
    program.tokens(owner, "credit.read")
    assert "Ledger reader" in person.mailed(email, subject)
    program.tokens(owner, "credit.read")
    program.tokens(owner, "attachment")
    person.mailed(email, subject, number=2)
    kept = stack.query(
        "SELECT count(*) FROM account_mails WHERE email = %s AND kind = 'new_program'", email
    )
    assert kept == [(2,)]


def test_a_mail_tells_of_a_login_in_a_new_browser_once(stack: Stack, email: str) -> None:
    subject = "Your account was used in a new browser"
    count = "SELECT count(*) FROM account_mails WHERE email = %s AND kind = 'new_browser'"
    with a_visitor(stack) as visitor:
        visitor.client.headers["User-Agent"] = "Mozilla/5.0 (X11; Linux) Firefox/140.0"
        assert visitor.log_in(email, "not the password").status_code == 403
        assert stack.query(count, email) == [(0,)]
        visitor.log_in(email)
        assert "Firefox on Linux" in visitor.mailed(email, subject)
        form = {"csrf_token": visitor.csrf_token()}
        assert visitor.client.post("/logout", data=form).status_code == 303
        visitor.log_in(email)
        assert stack.query(count, email) == [(1,)]
        # To another person of the same browser it is new.
        other = new_account(stack)
        visitor.client.post("/logout", data={"csrf_token": visitor.csrf_token()})
        visitor.log_in(other)
        visitor.mailed(other, subject)
