"""Tests of the developer pages in the console: API keys, OAuth programs, webhooks and events."""

import html
import json
import re
from datetime import UTC, datetime, timedelta

from api.console.console_display import format_day
from core.ids import MAX_ID
from core.scopes import SCOPE_EXPLANATIONS, Scope
from devstack.harness.polling import eventually
from devstack.harness.stack import Stack
from models import Plan
from services.webhooks.deliveries import MAX_COUNTED_EVENTS
from tests.support.http.replies import data, problem
from tests.support.http.webhook_receiver import (
    CREATED,
    LEFT,
    OK,
    HookReceiver,
    event_ids,
    happen,
    new_endpoint,
)
from tests.support.lists.segments import put
from tests.support.lists.subscribers import Reader, new_list
from tests.support.people.consoles import (
    OwnerAtConsole,
    at_console,
    calls_of,
    forms_of,
    heading,
    rows_of,
    shown,
    wrong_beside,
)
from tests.support.people.erasure import erase
from tests.support.people.oauth import log_in, register

PROGRAMS = "/console/developers"
HOOKS, EVENTS = f"{PROGRAMS}/webhooks", f"{PROGRAMS}/feed"
KEYS, NEW_KEY, ACCESS = f"{PROGRAMS}/keys", f"{PROGRAMS}/keys/new", f"{PROGRAMS}/access"


def made_key(console: OwnerAtConsole, *ticked: Scope, **typed: str) -> str:
    boxes = {f"scope.{scope}": "on" for scope in ticked}
    reply = console.send(NEW_KEY, name="Upload <script>", **boxes, **typed)
    [key] = re.findall(r'value="(prk_\w+)"', shown(reply))
    return str(key)


def test_console_creates_an_api_key_and_shows_it_only_once_and_revokes_it(
    console: OwnerAtConsole, stack: Stack
) -> None:
    both = {"name": "x", "reach": "all", "lifetime": "90", f"scope.{Scope.ATTACHMENT}": "on"}
    assert wrong_beside(shown(console.send(NEW_KEY, **both), 422), "reach")
    key = made_key(console, Scope.ATTACHMENT, Scope.WEBHOOK)
    with stack.client(key) as client:
        data(client.get("/attachments"))
        data(client.get("/webhook-endpoints"))
        problem(client.get("/lists"), 403, "auth.insufficient_scope")
    text = console.see(KEYS)
    assert key not in text
    assert "<bdi>Upload &lt;script&gt;</bdi>" in text
    assert f"…{key[-4:]}, created" in text
    assert SCOPE_EXPLANATIONS[Scope.ATTACHMENT] in text
    assert SCOPE_EXPLANATIONS[Scope.COMPOSER] not in text
    found = "SELECT id, extract(days FROM expires_at - now()) FROM api_keys WHERE last_four = %s"
    [(key_id, days)] = stack.query(f"{found} AND name LIKE 'Upload%%'", key[-4:])
    assert days == 89

    end = f"{KEYS}/{key_id}/end"
    assert heading(console.see(end)) == f"Revoke Upload <script> (…{key[-4:]})?"
    assert stack.is_accepted(key)
    assert "was revoked." in console.do(end)
    assert not stack.is_accepted(key)
    console.see(end, 404)
    assert console.visitor.client.post(end, data={}).status_code == 403

    hook_url = "http://127.0.0.1:9/hook"
    for ticked, state in (({}, "ended"), ({"keep_endpoints": "on"}, "active")):
        maker = made_key(console, Scope.WEBHOOK, Scope.SUBSCRIPTION_READ)
        with stack.client(maker) as client:
            made = new_endpoint(client, hook_url)
        end = f"{KEYS}/{made['key_id']}/end"
        assert hook_url in console.see(end)
        assert console.send(end, **ticked).status_code == 303
        assert data(console.api.get(f"/webhook-endpoints/{made['id']}"))["state"] == state

    unrestricted = made_key(console, reach="all", lifetime="")
    rows = rows_of(console.see(KEYS))
    assert [row[1] for row in rows if unrestricted[-4:] in row[0]] == ["Full access"]
    [mine] = [
        each for each in data(console.api.get("/apikeys")) if each["last_four"] == unrestricted[-4:]
    ]
    assert (mine["scopes"], mine["expires_at"]) == (None, None)
    assert "You have 2 API keys" in console.see(PROGRAMS)


def test_console_shows_api_key_errors_next_to_their_fields(console: OwnerAtConsole) -> None:
    scope = {f"scope.{Scope.ATTACHMENT}": "on"}
    for field, typed in (
        ("name", {"name": " ", **scope}),
        ("name", {"name": "n" * 201, **scope}),
        ("reach", {"name": "n"}),
        # Only the operator can grant the scope DELIVERY.
        ("reach", {"name": "n", f"scope.{Scope.DELIVERY}": "on"}),
        ("reach", {"name": "n", "reach": "some", **scope}),
        ("lifetime", {"name": "n", "lifetime": "7", **scope}),
    ):
        reply = console.send(NEW_KEY, **typed)
        assert wrong_beside(shown(reply, 422), field)
        [(_, kept)] = forms_of(reply)
        assert kept["name"] == typed["name"]
        assert set(scope) & set(typed) == set(scope) & set(kept)
    assert len(data(console.api.get("/apikeys"))) == 1


def test_console_rejects_an_api_key_beyond_the_plan_and_gives_the_reason(stack: Stack) -> None:
    with at_console(stack, stack.create_owner(plan=Plan.FREE)) as console:
        for _ in range(8):
            stack.create_key(console.owner.user_id)
        [(action, values)] = forms_of(console.visitor.get(NEW_KEY))
        # While the form is open, another program creates the last key that the plan allows.
        stack.create_key(console.owner.user_id)
        form = {**values, "name": "n", "reach": "all"}
        text = shown(console.visitor.client.post(action, data=form), 403)
        assert "You have used 10 of 10." in text
        noted = data(console.api.get("/users/me/security-events"))["items"]
        assert "quota.refused" in {each["type"] for each in noted}


def test_console_shows_oauth_grants_and_revokes_them_after_confirmation(
    console: OwnerAtConsole, stack: Stack
) -> None:
    assert "No connected apps" in console.see(ACCESS)
    program = register(stack, name="Ledger & <reader>")
    person = log_in(stack, console.owner)
    with person.browser:
        given = program.tokens(person, "credit.read")
    text = console.see(ACCESS)
    assert "Ledger &amp; &lt;reader&gt;" in text
    assert SCOPE_EXPLANATIONS[Scope.CREDIT_READ] in text
    assert "1 app has access to your account" in console.see(PROGRAMS)
    [grant] = data(console.api.get("/grants"))
    end = f"{ACCESS}/{grant['id']}/end"
    [call] = calls_of(console.see(end))
    assert (call.method, call.path) == ("DELETE", f"/grants/{grant['id']}")
    assert stack.is_accepted(given["access_token"])
    assert "no longer has access." in console.do(end)
    assert not stack.is_accepted(given["access_token"])
    console.see(end, 404)


RECOMMENDED = ("type.subscription.created", "type.subscription.confirmed", f"type.{LEFT}")


def made_hook(
    console: OwnerAtConsole, without: tuple[str, ...] = RECOMMENDED, /, **typed: str
) -> tuple[str, str]:
    """Create a webhook in the console, and return its path and its secret.

    ``without``: recommended event types whose boxes are unticked in the form.
    """
    text = shown(console.send(f"{HOOKS}/new", 0, without, **typed))
    assert heading(text) == "Your new webhook"
    [secret] = re.findall(r'value="(whsec_[^"]+)"', text)
    [path] = set(re.findall(rf'href="[^"]*({HOOKS}/\d+)"', text))
    return str(path), str(secret)


def texts_in_code(text: str) -> list[str]:
    return [html.unescape(each) for each in re.findall(r"<code>(.*?)</code>", text, re.DOTALL)]


def sent_to(console: OwnerAtConsole, path: str) -> list[list[str]]:
    """Return the event, subject, state and response of each delivery on a webhook's page."""
    return [row[:4] for row in rows_of(console.see(path)) if row[0] != "Event"]


def states_of(console: OwnerAtConsole, path: str) -> list[str]:
    return [row[2] for row in sent_to(console, path)]


def test_console_creates_and_tests_and_pauses_and_rotates_and_deletes_a_webhook(
    console: OwnerAtConsole, stack: Stack, receiver: HookReceiver
) -> None:
    assert "No webhooks yet" in console.see(HOOKS)
    receiver.answer = lambda _: (503, {"Retry-After": "3600"}) if len(receiver.hooks) == 1 else OK
    path, secret = made_hook(console, url=receiver.url, **{f"type.{LEFT}": "on"})
    text = console.see(path)
    assert secret not in text
    assert "No deliveries yet." in text
    assert "The first delivery below shows the result of the test." in console.do(path)
    # A delivery attempt is counted at its start, before the response is known.
    eventually(lambda: sent_to(console, path)[0][3].startswith("503"), what="its answer")
    [(event, subject, state, answer)] = sent_to(console, path)
    assert (event, subject) == ("Test event", "")
    assert state.startswith("Waiting next in ")
    assert re.fullmatch(r"503, in [\d,]+ ms: taken", answer)
    assert [row[1].startswith("Failing since") for row in rows_of(console.see(HOOKS))[1:]] == [True]
    assert "1 webhook is failing" in console.see(PROGRAMS)

    [delivery] = re.findall(rf'href="[^"]*({path}/deliveries/\d+)"', console.see(path))
    _, form = forms_of(console.visitor.get(delivery))[-1]
    reply = console.visitor.client.post(f"{delivery}/resend", data=form)
    assert reply.status_code == 303
    eventually(lambda: states_of(console, path) == ["Delivered 2 attempts"], what="the second try")
    assert receiver.hooks[0].id == receiver.hooks[1].id
    receiver.hooks[1].check(secret)
    happen(stack, console.owner, LEFT)
    eventually(lambda: len(sent_to(console, path)) == 2, what="an event")

    # The form for changing a webhook contains the webhook's current values.
    changes = {"type.credits.low": "on"}
    console.do(f"{path}/change", 0, (f"type.{LEFT}",), **changes)
    text = console.do(path, 1, state="paused")
    assert "The webhook is paused." in text
    assert "You paused this webhook." in text
    assert "Send a test event" not in text
    [endpoint] = data(console.api.get("/webhook-endpoints"))
    assert (endpoint["types"], endpoint["state"]) == (["credits.low"], "paused")
    assert shown(console.visitor.client.post(f"{path}/test", data=form), 409)

    assert "The webhook gets events again" in console.do(path, state="active")
    assert data(console.api.get("/webhook-endpoints"))[0]["state"] == "active"
    assert console.visitor.get(f"{path}/state").headers["location"].endswith(path)

    text = shown(console.send(f"{path}/rotate"))
    [newer] = re.findall(r'value="(whsec_[^"]+)"', text)
    assert newer != secret
    assert "was deleted" in console.do(f"{path}/end")
    assert data(console.api.get("/webhook-endpoints")) == []
    for page in ("", "/change", "/rotate", "/end"):
        console.see(path + page, 404)


def delivery_paths(console: OwnerAtConsole, path: str) -> list[str]:
    return re.findall(rf'href="[^"]*({path}/deliveries/\d+)"', console.see(path))


def test_console_rebuilds_the_request_of_a_delivery_without_its_signature(
    console: OwnerAtConsole, stack: Stack, receiver: HookReceiver
) -> None:
    receiver.body = b"<b>taken</b>" + b"." * 300
    endpoint = new_endpoint(console.api, receiver.url, LEFT)
    path = f"{HOOKS}/{endpoint['id']}"
    happen(stack, console.owner, LEFT)
    eventually(lambda: states_of(console, path) == ["Delivered"], what="the delivery")
    [delivery_path] = delivery_paths(console, path)
    text = console.see(delivery_path)
    assert heading(text) == "Delivery: A member unsubscribed"
    assert "This request was built again from the event" in text
    [hook] = receiver.hooks
    answer, headers, body = texts_in_code(text)[:3]
    assert json.loads(body) == hook.content
    rebuilt = dict(line.split(": ", 1) for line in headers.lower().splitlines())
    sent_at = int(rebuilt.pop("webhook-timestamp"))
    assert abs(sent_at - int(hook.headers["webhook-timestamp"])) <= 1
    assert rebuilt == {
        name: hook.headers[name].lower() for name in ("content-type", "user-agent", "webhook-id")
    }
    assert "webhook-signature" not in text
    assert answer == receiver.body.decode()
    assert "The event is being sent again." in console.do(delivery_path)
    eventually(lambda: len(receiver.hooks) == 2, what="the event again")
    # The database doesn't allow deleting an event that is younger than 30 days. Therefore the test
    # makes the delivery refer to an event that doesn't exist.
    gone = "UPDATE webhook_deliveries SET event_id = %s WHERE endpoint_id = %s"
    stack.query(gone, MAX_ID, endpoint["id"])
    assert "because the event has been deleted" in console.see(delivery_path)
    other = new_endpoint(console.api, receiver.url, LEFT)
    console.see(delivery_path.replace(str(endpoint["id"]), str(other["id"])), 404)


def test_console_shows_no_request_about_an_erased_person(
    console: OwnerAtConsole, stack: Stack, reader: Reader, receiver: HookReceiver
) -> None:
    list_id = new_list(console.api)["id"]
    path = f"{HOOKS}/{new_endpoint(console.api, receiver.url, CREATED)['id']}"
    reader.joins(list_id)
    eventually(lambda: receiver.hooks, what="the event")
    eventually(lambda: states_of(console, path) == ["Delivered"], what="the delivery")
    [delivery_path] = delivery_paths(console, path)
    assert reader.email in console.see(delivery_path)
    [(_, subject, *_)] = sent_to(console, path)
    assert subject.replace(" @", "@") == reader.email
    erase(stack.resources, reader.email)
    [(_, subject, *_)] = sent_to(console, path)
    assert subject == ""
    text = console.see(delivery_path)
    assert "because the person’s data was erased" in text
    assert not any("{" in each for each in texts_in_code(text))


def test_console_recommends_event_types_and_subscribes_to_whole_groups(
    console: OwnerAtConsole, receiver: HookReceiver
) -> None:
    new = f"{HOOKS}/new"
    text = console.see(new)
    assert "&#34;type&#34;: &#34;subscription.created&#34;" in text
    [(_, form)] = forms_of(console.visitor.get(new))
    assert [name for name in form if name.startswith("type.")] == [*RECOMMENDED]
    made_hook(console, RECOMMENDED[1:], url=receiver.url, **{"group.2": "on"})
    [endpoint] = data(console.api.get("/webhook-endpoints"))
    assert sorted(endpoint["types"]) == [
        *("attachment.deleted", "attachment.failed", "attachment.ready", "subscription.created")
    ]


def test_console_shows_webhook_errors_next_to_their_fields(
    console: OwnerAtConsole, receiver: HookReceiver
) -> None:
    list_id = new_list(console.api, title="The <i>Daily</i>")["id"]
    new, box = f"{HOOKS}/new", {f"type.{LEFT}": "on"}
    for url in ("", "example.com", "ftp://127.0.0.1/", "https://10.0.0.1/"):
        reply = console.send(new, url=url, list_id=str(list_id), **box)
        assert "url: " not in wrong_beside(shown(reply, 422), "url")
        [(_, kept)] = forms_of(reply)
        assert (kept["url"], kept["list_id"]) == (url, str(list_id))
        assert kept[f"type.{LEFT}"]
    text = shown(console.send(new, 0, RECOMMENDED, url=receiver.url), 422)
    assert 'id="types-wrong"' in text
    text = shown(console.send(new, url=receiver.url, list_id="x", **box), 422)
    assert wrong_beside(text, "list_id")
    shown(console.send(new, url=receiver.url, list_id="1", **box), 404)
    assert data(console.api.get("/webhook-endpoints")) == []

    path, _ = made_hook(console, url=receiver.url, list_id=str(list_id), **box)
    assert "The &lt;i&gt;Daily&lt;/i&gt;" in console.see(path)
    change = f"{path}/change"
    assert wrong_beside(shown(console.send(change, url="http://10.0.0.1/"), 422), "url")
    [endpoint] = data(console.api.get("/webhook-endpoints"))
    assert (endpoint["url"], endpoint["state"]) == (receiver.url, "active")


def event_rows(console: OwnerAtConsole, **query: str) -> list[list[str]]:
    """Return the rows of the events page that show an event, without the rows that show a day."""
    rows = [row for row in rows_of(console.see(EVENTS, **query))[1:] if len(row) > 1]
    # The cell of the type also contains the event as JSON.
    return [[*row[:2], row[2].partition("{")[0].strip(), *row[3:]] for row in rows]


def test_console_shows_the_newest_events_in_words_and_filters_them_by_type(
    console: OwnerAtConsole, stack: Stack
) -> None:
    made_key(console, Scope.COMPOSER)
    list_id = new_list(console.api)["id"]
    happen(stack, console.owner, LEFT, list_id=list_id)

    # An event is not shown while an older transaction of another test is open.
    eventually(lambda: any(row[2] == LEFT for row in event_rows(console)), what="the event")
    assert next(row for row in event_rows(console) if row[2] == LEFT)[::2] == [
        "A member unsubscribed",
        LEFT,
    ]
    found = event_rows(console, type="key.created")
    assert {row[2] for row in found} == {"key.created"}
    text = console.see(EVENTS, type="key.created")
    [call] = calls_of(text)
    events = data(console.api.get(call.path))["items"]
    assert len(events) == len(found)
    shown_events = re.findall(r'<pre tabindex="0"><code>({.*?})</code>', text, re.DOTALL)
    assert [json.loads(html.unescape(each)) for each in shown_events] == events[::-1]
    assert "No events of this type" in console.see(EVENTS, type="order.disputed")


def since(moment: datetime) -> dict[str, str]:
    return {"day": moment.date().isoformat(), "time": f"{moment:%H:%M}"}


def an_hour_ago() -> dict[str, str]:
    return since(datetime.now(UTC) - timedelta(hours=1))


def test_console_replays_webhook_events_since_a_chosen_time_with_their_original_ids(
    console: OwnerAtConsole, receiver: HookReceiver, stack: Stack
) -> None:
    endpoint = new_endpoint(console.api, receiver.url)
    path = f"{HOOKS}/{endpoint['id']}"
    happen(stack, console.owner, count=3)
    happen(stack, console.owner, LEFT)
    eventually(lambda: len(receiver.hooks) >= 4, what="the events")
    assert f'href="{stack.api_url}{path}/replay"' in console.see(path)

    text = console.see(f"{path}/replay", **an_hour_ago())
    assert heading(text) == "Replay events"
    assert "Replay 4 events?" in text
    [call] = calls_of(text)
    assert call.path == f"/webhook-endpoints/{endpoint['id']}/replay"
    asked = datetime.fromisoformat(call.body["since"])
    assert since(asked) == since(asked.replace(second=0, microsecond=0))
    assert asked < datetime.now(UTC)

    receiver.hooks.clear()
    [(action, form), _] = forms_of(console.visitor.get(f"{path}/replay", **an_hour_ago()))
    assert receiver.hooks == []
    reply = console.visitor.client.post(action, data=form)
    assert reply.status_code == 303, reply.text
    text = shown(console.visitor.client.get(reply.headers["location"]))
    assert "The events are being sent again, oldest first." in text
    everything = event_ids(stack, console.owner)
    eventually(lambda: len(receiver.hooks) >= 4, what="all events again")
    assert receiver.ids == everything


def test_console_replay_counts_only_events_that_the_webhook_receives(
    console: OwnerAtConsole, receiver: HookReceiver, stack: Stack
) -> None:
    list_id, other_id = new_list(console.api)["id"], new_list(console.api)["id"]
    endpoint = new_endpoint(console.api, receiver.url, CREATED, list_id=list_id)
    path = f"{HOOKS}/{endpoint['id']}/replay"
    happen(stack, console.owner, LEFT, list_id=list_id)
    happen(stack, console.owner, list_id=other_id)
    assert "The webhook has no events since this time." in console.see(path, **an_hour_ago())
    happen(stack, console.owner, list_id=list_id)
    assert "Replay 1 event?" in console.see(path, **an_hour_ago())
    later = since(datetime.now(UTC) + timedelta(hours=1))
    assert "The webhook has no events since this time." in console.see(path, **later)


def test_console_replay_shows_more_than_1000_events_without_an_exact_number(
    console: OwnerAtConsole, receiver: HookReceiver, stack: Stack
) -> None:
    endpoint = new_endpoint(console.api, receiver.url, LEFT)
    data(console.api.patch(f"/webhook-endpoints/{endpoint['id']}", json={"state": "paused"}))
    path = f"{HOOKS}/{endpoint['id']}/replay"
    stack.query(
        "INSERT INTO feed_events (user_id, type) SELECT %s, %s FROM generate_series(1, %s)",
        console.owner.user_id,
        LEFT.value,
        MAX_COUNTED_EVENTS,
    )
    assert "Replay 1,000 events?" in console.see(path, **an_hour_ago())
    happen(stack, console.owner, LEFT)
    text = console.see(path, **an_hour_ago())
    assert "Replay more than 1,000 events?" in text
    # Events can't be sent again to a paused webhook.
    assert "The webhook isn’t active" in text
    assert len(forms_of(console.visitor.get(path, **an_hour_ago()))) == 1


def test_console_replay_rejects_an_invalid_time(
    console: OwnerAtConsole, receiver: HookReceiver, stack: Stack
) -> None:
    endpoint = new_endpoint(console.api, receiver.url)
    path = f"{HOOKS}/{endpoint['id']}/replay"
    happen(stack, console.owner)
    eventually(lambda: receiver.hooks, what="the event")
    form = forms_of(console.visitor.get(path, **an_hour_ago()))[0][1]
    for field, typed in (("day", "2026-02-30"), ("time", "25:00"), ("time", "14:00+02:00")):
        asked = console.visitor.get(path, **{**an_hour_ago(), field: typed})
        assert wrong_beside(shown(asked, 422), field)
        reply = console.visitor.client.post(path, data={**form, field: typed})
        assert wrong_beside(shown(reply, 422), field)
    # No event can have happened since 9999-12-31.
    reply = console.visitor.client.post(path, data={**form, "day": "9999-12-31"})
    assert "no events since this time" in wrong_beside(shown(reply, 422), "day")
    assert len(receiver.hooks) == 1


def test_console_groups_similar_events_in_one_row_per_day(console: OwnerAtConsole) -> None:
    list_id = new_list(console.api)["id"]
    for values in ({}, {"name": "A"}, {"name": "B"}, {"name": "C"}):
        put(console.api, list_id, "ada@example.com", **values)
    words = "A member was changed, 3 times"
    eventually(lambda: any(row[0] == words for row in event_rows(console)), what="the events")
    assert rows_of(console.see(EVENTS))[1] == [format_day(datetime.now(UTC))]
