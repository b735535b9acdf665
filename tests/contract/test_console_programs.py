"""The console's pages of what acts for an owner: keys, other programs, webhooks and events."""

import re
from collections.abc import Iterator

import pytest

from core.scopes import EXPLANATIONS, Scope
from models import Plan
from tests.consoles import (
    OwnerAtConsole,
    at_console,
    calls_of,
    forms_of,
    heading,
    shown,
    wrong_beside,
)
from tests.contract.replies import data, problem
from tests.oauth import log_in, register
from tests.stack import Stack

PROGRAMS = "/console/programs"
KEYS, NEW_KEY, ACCESS = f"{PROGRAMS}/keys", f"{PROGRAMS}/keys/new", f"{PROGRAMS}/access"


@pytest.fixture
def owner(stack: Stack) -> Iterator[OwnerAtConsole]:
    with at_console(stack) as found:
        yield found


def opens(stack: Stack, credential: str) -> bool:
    with stack.client(credential) as client:
        return client.get("/users/me").status_code == 200


# -- keys ----------------------------------------------------------------------------------------


def made_key(owner: OwnerAtConsole, *ticked: Scope, **typed: str) -> str:
    boxes = {f"scope.{scope}": "on" for scope in ticked}
    reply = owner.send(NEW_KEY, name="Upload <script>", **boxes, **typed)
    [key] = re.findall(r'value="(prk_\w+)"', shown(reply))
    return str(key)


def test_a_key_is_made_shown_once_used_and_ended_after_a_question(
    owner: OwnerAtConsole, stack: Stack
) -> None:
    key = made_key(owner, Scope.ATTACHMENT, Scope.WEBHOOK)
    with stack.client(key) as client:
        data(client.get("/attachments"))
        data(client.get("/webhook-endpoints"))
        problem(client.get("/lists"), 403, "auth.insufficient_scope")
    text = owner.see(KEYS)
    assert key not in text
    assert f"Upload &lt;script&gt; (…{key[-4:]})" in text
    assert EXPLANATIONS[Scope.ATTACHMENT] in text
    assert EXPLANATIONS[Scope.COMPOSER] not in text
    found = "SELECT id, extract(days FROM expires_at - now()) FROM api_keys WHERE last_four = %s"
    [(key_id, days)] = stack.query(f"{found} AND name LIKE 'Upload%%'", key[-4:])
    assert days == 89

    end = f"{KEYS}/{key_id}/end"
    assert heading(owner.see(end)) == f"End Upload <script> (…{key[-4:]})?"
    assert opens(stack, key)
    assert "is ended." in owner.do(end)
    assert not opens(stack, key)
    owner.see(end, 404)
    assert owner.visitor.client.post(end, data={}).status_code == 403

    unrestricted = made_key(owner, reach="all", lifetime="")
    assert "It may do all that you may." in owner.see(KEYS)
    [mine] = [
        each for each in data(owner.api.get("/apikeys")) if each["last_four"] == unrestricted[-4:]
    ]
    assert (mine["scopes"], mine["expires_at"]) == (None, None)
    assert "You have 2 keys" in owner.see(PROGRAMS)


def test_what_no_key_can_be_is_told_beside_its_field(owner: OwnerAtConsole) -> None:
    scope = {f"scope.{Scope.ATTACHMENT}": "on"}
    for field, typed in (
        ("name", {"name": " ", **scope}),
        ("name", {"name": "n" * 201, **scope}),
        ("reach", {"name": "n"}),
        # The operator alone gives it.
        ("reach", {"name": "n", f"scope.{Scope.DELIVERY}": "on"}),
        ("reach", {"name": "n", "reach": "some", **scope}),
        ("lifetime", {"name": "n", "lifetime": "7", **scope}),
    ):
        reply = owner.send(NEW_KEY, **typed)
        assert wrong_beside(shown(reply, 422), field)
        [(_, kept)] = forms_of(reply)
        assert kept["name"] == typed["name"]
        assert set(scope) & set(typed) == set(scope) & set(kept)
    assert len(data(owner.api.get("/apikeys"))) == 1


def test_a_key_beyond_the_plan_is_refused_with_the_reason(stack: Stack) -> None:
    with at_console(stack, stack.new_owner(plan=Plan.FREE)) as owner:
        for _ in range(9):
            stack.new_key(owner.owner.user_id)
        text = shown(owner.send(NEW_KEY, name="n", reach="all"), 403)
        assert "10 of 10 are used" in text
        noted = data(owner.api.get("/users/me/security-events"))["items"]
        assert "quota.refused" in {each["type"] for each in noted}


def test_the_pages_that_were_elsewhere_lead_here(owner: OwnerAtConsole) -> None:
    for path, now in (
        ("/account/keys", KEYS),
        ("/account/keys/new", NEW_KEY),
        ("/account/grants", ACCESS),
    ):
        reply = owner.visitor.get(path)
        assert reply.headers["location"] == owner.visitor.stack.api_url + now


# -- other programs ------------------------------------------------------------------------------


def test_access_is_shown_and_taken_back_after_a_question(
    owner: OwnerAtConsole, stack: Stack
) -> None:
    assert "No other program may use your account" in owner.see(ACCESS)
    program = register(stack, name="Ledger & <reader>")
    person = log_in(stack, owner.owner)
    with person.browser:
        given = program.tokens(person, "credit.read")
    text = owner.see(ACCESS)
    assert "Ledger &amp; &lt;reader&gt;" in text
    assert EXPLANATIONS[Scope.CREDIT_READ] in text
    assert "You gave 1 program of others access" in owner.see(PROGRAMS)
    [grant] = data(owner.api.get("/grants"))
    end = f"{ACCESS}/{grant['id']}/end"
    [call] = calls_of(owner.see(end))
    assert (call.method, call.path) == ("DELETE", f"/grants/{grant['id']}")
    assert opens(stack, given["access_token"])
    assert "has no access any more." in owner.do(end)
    assert not opens(stack, given["access_token"])
    owner.see(end, 404)
