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
    rows_of,
    shown,
    wrong_beside,
)
from tests.contract.replies import data, problem
from tests.contract.subscribers import new_list
from tests.hooks import LEFT, OK, HookReceiver, happen, hooked
from tests.oauth import log_in, register
from tests.stack import Stack, eventually

PROGRAMS = "/console/programs"
HOOKS, EVENTS = f"{PROGRAMS}/webhooks", f"{PROGRAMS}/feed"
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


# -- webhooks ------------------------------------------------------------------------------------


@pytest.fixture
def receiver() -> Iterator[HookReceiver]:
    with hooked() as found:
        yield found


def made_hook(owner: OwnerAtConsole, **typed: str) -> tuple[str, str]:
    """The path of a new webhook, and its secret."""
    text = shown(owner.send(f"{HOOKS}/new", **typed))
    assert heading(text) == "Your new webhook"
    [secret] = re.findall(r'value="(whsec_[^"]+)"', text)
    [path] = set(re.findall(rf'href="[^"]*({HOOKS}/\d+)"', text))
    return str(path), str(secret)


def sent_to(owner: OwnerAtConsole, path: str) -> list[list[str]]:
    """Event, state, tries and answer of each delivery."""
    return [row[:4] for row in rows_of(owner.see(path)) if row[0] != "Event"]


def test_a_webhook_is_made_tested_resent_paused_and_ended(
    owner: OwnerAtConsole, stack: Stack, receiver: HookReceiver
) -> None:
    assert "You have no webhook yet" in owner.see(HOOKS)
    receiver.answer = lambda _: (503, {"Retry-After": "3600"}) if len(receiver.hooks) == 1 else OK
    path, secret = made_hook(owner, url=receiver.url, **{f"type.{LEFT}": "on"})
    text = owner.see(path)
    assert secret not in text
    assert "Nothing yet." in text
    assert "A test event is on its way." in owner.do(path)
    # A try is counted when it begins; its answer is known when it has ended.
    eventually(lambda: sent_to(owner, path)[0][3].startswith("503"), what="its answer")
    [(event, state, tries, answer)] = sent_to(owner, path)
    assert (event, tries) == ("A test", "1")
    assert state.startswith("is tried again in ")
    assert re.fullmatch(r"503, in [\d,]+ ms: taken", answer)
    assert [
        row[1].startswith("not reached; the first time") for row in rows_of(owner.see(HOOKS))[1:]
    ] == [True]
    assert "1 of them is not reached" in owner.see(PROGRAMS)

    text = owner.see(path)
    [resend] = re.findall(r'formaction="[^"]*(/console[^"]*resend)"', text)
    _, form = forms_of(owner.visitor.get(path))[-1]
    reply = owner.visitor.client.post(resend, data=form)
    assert reply.status_code == 303
    eventually(lambda: sent_to(owner, path)[0][1] == "delivered", what="the second try")
    assert receiver.hooks[0].id == receiver.hooks[1].id
    receiver.hooks[1].check(secret)
    happen(stack, owner.owner, LEFT)
    eventually(lambda: len(sent_to(owner, path)) == 2, what="an event")

    # Its form is as the webhook is.
    text = owner.do(
        f"{path}/change",
        0,
        (f"type.{LEFT}",),
        **{
            "state": "paused",
            "type.credits.low": "on",
        },
    )
    assert "Its owner paused it." in text
    assert "Send a test event" not in text
    [endpoint] = data(owner.api.get("/webhook-endpoints"))
    assert (endpoint["types"], endpoint["state"]) == (["credits.low"], "paused")
    assert shown(owner.visitor.client.post(f"{path}/test", data=form), 409)

    text = shown(owner.send(f"{path}/rotate"))
    [newer] = re.findall(r'value="(whsec_[^"]+)"', text)
    assert newer != secret
    assert "is ended" in owner.do(f"{path}/end")
    assert data(owner.api.get("/webhook-endpoints")) == []
    for page in ("", "/change", "/rotate", "/end"):
        owner.see(path + page, 404)


def test_what_no_webhook_can_be_is_told_beside_its_field(
    owner: OwnerAtConsole, receiver: HookReceiver
) -> None:
    list_id = new_list(owner.api, title="The <i>Daily</i>")["id"]
    new, box = f"{HOOKS}/new", {f"type.{LEFT}": "on"}
    for url in ("", "example.com", "ftp://127.0.0.1/", "https://10.0.0.1/"):
        reply = owner.send(new, url=url, list_id=str(list_id), **box)
        assert wrong_beside(shown(reply, 422), "url")
        [(_, kept)] = forms_of(reply)
        assert (kept["url"], kept["list_id"]) == (url, str(list_id))
        assert kept[f"type.{LEFT}"]
    text = shown(owner.send(new, url=receiver.url), 422)
    assert 'id="types-wrong"' in text
    text = shown(owner.send(new, url=receiver.url, list_id="x", **box), 422)
    assert wrong_beside(text, "list_id")
    shown(owner.send(new, url=receiver.url, list_id="1", **box), 404)
    assert data(owner.api.get("/webhook-endpoints")) == []

    path, _ = made_hook(owner, url=receiver.url, list_id=str(list_id), **box)
    assert "The &lt;i&gt;Daily&lt;/i&gt;" in owner.see(path)
    change = f"{path}/change"
    assert wrong_beside(shown(owner.send(change, url="http://10.0.0.1/"), 422), "url")
    assert wrong_beside(shown(owner.send(change, state="ended"), 422), "state")
    [endpoint] = data(owner.api.get("/webhook-endpoints"))
    assert (endpoint["url"], endpoint["state"]) == (receiver.url, "active")


# -- events --------------------------------------------------------------------------------------


def test_the_newest_events_are_shown_in_words(owner: OwnerAtConsole, stack: Stack) -> None:
    made_key(owner, Scope.COMPOSER)
    list_id = new_list(owner.api)["id"]
    happen(stack, owner.owner, LEFT, list_id=list_id)

    def rows() -> list[list[str]]:
        return rows_of(owner.see(EVENTS))[1:]

    # While an older transaction of another test is open, an event counts as one to come.
    eventually(lambda: any(row[2] == LEFT for row in rows()), what="the event")
    assert next(row for row in rows() if row[2] == LEFT)[::2] == ["A person left", LEFT]
    found = rows_of(owner.see(EVENTS, type="key.created"))[1:]
    assert {row[2] for row in found} == {"key.created"}
    [call] = calls_of(owner.see(EVENTS, type="key.created"))
    assert len(data(owner.api.get(call.path))["items"]) == len(found)
    assert "Nothing has happened of that kind" in owner.see(EVENTS, type="order.disputed")
