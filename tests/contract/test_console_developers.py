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
    announce_events,
    event_ids,
    new_endpoint,
)
from tests.support.lists.segments import put_member
from tests.support.lists.subscribers import Reader, new_list
from tests.support.people.consoles import (
    OwnerAtConsole,
    at_console,
    calls_of,
    forms_of,
    heading,
    read_error,
    read_page,
    rows_of,
)
from tests.support.people.erasure import erase
from tests.support.people.oauth import log_in, register

DEVELOPERS_PATH = "/console/developers"
WEBHOOKS_PATH = f"{DEVELOPERS_PATH}/webhooks"
EVENTS_PATH = f"{DEVELOPERS_PATH}/feed"
KEYS_PATH = f"{DEVELOPERS_PATH}/keys"
NEW_KEY_PATH = f"{DEVELOPERS_PATH}/keys/new"
GRANTS_PATH = f"{DEVELOPERS_PATH}/access"


def create_key(console: OwnerAtConsole, *scopes: Scope, **form_values: str) -> str:
    boxes = {f"scope.{scope}": "on" for scope in scopes}
    reply = console.send(NEW_KEY_PATH, name="Upload <script>", **boxes, **form_values)
    [key] = re.findall(r'value="(prk_\w+)"', read_page(reply))
    return str(key)


def test_console_creates_an_api_key_and_shows_it_only_once_and_revokes_it(
    console: OwnerAtConsole, stack: Stack
) -> None:
    conflicting_values = {
        "name": "x",
        "reach": "all",
        "lifetime": "90",
        f"scope.{Scope.ATTACHMENT}": "on",
    }
    assert read_error(read_page(console.send(NEW_KEY_PATH, **conflicting_values), 422), "reach")
    key = create_key(console, Scope.ATTACHMENT, Scope.WEBHOOK)
    with stack.client(key) as client:
        data(client.get("/attachments"))
        data(client.get("/webhook-endpoints"))
        problem(client.get("/lists"), 403, "auth.insufficient_scope")
    text = console.see(KEYS_PATH)
    assert key not in text
    assert "<bdi>Upload &lt;script&gt;</bdi>" in text
    assert f"…{key[-4:]}, created" in text
    assert SCOPE_EXPLANATIONS[Scope.ATTACHMENT] in text
    assert SCOPE_EXPLANATIONS[Scope.COMPOSER] not in text
    key_query = (
        "SELECT id, extract(days FROM expires_at - now()) FROM api_keys WHERE last_four = %s"
    )
    [(key_id, days)] = stack.query(f"{key_query} AND name LIKE 'Upload%%'", key[-4:])
    assert days == 89

    revoke_path = f"{KEYS_PATH}/{key_id}/end"
    assert heading(console.see(revoke_path)) == f"Revoke Upload <script> (…{key[-4:]})?"
    assert stack.is_accepted(key)
    assert "was revoked." in console.do(revoke_path)
    assert not stack.is_accepted(key)
    console.see(revoke_path, 404)
    assert console.visitor.client.post(revoke_path, data={}).status_code == 403

    hook_url = "http://127.0.0.1:9/hook"
    for form_values, expected_state in (({}, "ended"), ({"keep_endpoints": "on"}, "active")):
        creating_key = create_key(console, Scope.WEBHOOK, Scope.SUBSCRIPTION_READ)
        with stack.client(creating_key) as client:
            endpoint = new_endpoint(client, hook_url)
        revoke_path = f"{KEYS_PATH}/{endpoint['key_id']}/end"
        assert hook_url in console.see(revoke_path)
        assert console.send(revoke_path, **form_values).status_code == 303
        assert (
            data(console.api.get(f"/webhook-endpoints/{endpoint['id']}"))["state"] == expected_state
        )

    unrestricted = create_key(console, reach="all", lifetime="")
    rows = rows_of(console.see(KEYS_PATH))
    assert [row[1] for row in rows if unrestricted[-4:] in row[0]] == ["Full access"]
    [listed_key] = [
        each for each in data(console.api.get("/apikeys")) if each["last_four"] == unrestricted[-4:]
    ]
    assert (listed_key["scopes"], listed_key["expires_at"]) == (None, None)
    assert "You have 2 API keys" in console.see(DEVELOPERS_PATH)


def test_console_shows_api_key_errors_next_to_their_fields(console: OwnerAtConsole) -> None:
    scope = {f"scope.{Scope.ATTACHMENT}": "on"}
    for field, form_values in (
        ("name", {"name": " ", **scope}),
        ("name", {"name": "n" * 201, **scope}),
        ("reach", {"name": "n"}),
        # Only the operator can grant the scope DELIVERY.
        ("reach", {"name": "n", f"scope.{Scope.DELIVERY}": "on"}),
        ("reach", {"name": "n", "reach": "some", **scope}),
        ("lifetime", {"name": "n", "lifetime": "7", **scope}),
    ):
        reply = console.send(NEW_KEY_PATH, **form_values)
        assert read_error(read_page(reply, 422), field)
        [(_, form)] = forms_of(reply)
        assert form["name"] == form_values["name"]
        assert set(scope) & set(form_values) == set(scope) & set(form)
    assert len(data(console.api.get("/apikeys"))) == 1


def test_console_rejects_an_api_key_beyond_the_plan_and_gives_the_reason(stack: Stack) -> None:
    with at_console(stack, stack.create_owner(plan=Plan.FREE)) as console:
        for _ in range(8):
            stack.create_key(console.owner.user_id)
        [(action, values)] = forms_of(console.visitor.get(NEW_KEY_PATH))
        # While the form is open, another program creates the last key that the plan allows.
        stack.create_key(console.owner.user_id)
        form = {**values, "name": "n", "reach": "all"}
        text = read_page(console.visitor.client.post(action, data=form), 403)
        assert "You have used 10 of 10." in text
        events = data(console.api.get("/users/me/security-events"))["items"]
        assert "quota.refused" in {each["type"] for each in events}


def test_console_shows_oauth_grants_and_revokes_them_after_confirmation(
    console: OwnerAtConsole, stack: Stack
) -> None:
    assert "No connected apps" in console.see(GRANTS_PATH)
    program = register(stack, name="Ledger & <reader>")
    person = log_in(stack, console.owner)
    with person.browser:
        tokens = program.tokens(person, "credit.read")
    text = console.see(GRANTS_PATH)
    assert "Ledger &amp; &lt;reader&gt;" in text
    assert SCOPE_EXPLANATIONS[Scope.CREDIT_READ] in text
    assert "1 app has access to your account" in console.see(DEVELOPERS_PATH)
    [grant] = data(console.api.get("/grants"))
    revoke_path = f"{GRANTS_PATH}/{grant['id']}/end"
    [call] = calls_of(console.see(revoke_path))
    assert (call.method, call.path) == ("DELETE", f"/grants/{grant['id']}")
    assert stack.is_accepted(tokens["access_token"])
    assert "no longer has access." in console.do(revoke_path)
    assert not stack.is_accepted(tokens["access_token"])
    console.see(revoke_path, 404)


RECOMMENDED_BOXES = ("type.subscription.created", "type.subscription.confirmed", f"type.{LEFT}")


def create_webhook(
    console: OwnerAtConsole,
    unticked_boxes: tuple[str, ...] = RECOMMENDED_BOXES,
    /,
    **form_values: str,
) -> tuple[str, str]:
    """Create a webhook in the console, and return its path and its secret.

    ``unticked_boxes``: the recommended event types whose boxes the owner unticks in the form.
    """
    text = read_page(console.send(f"{WEBHOOKS_PATH}/new", 0, unticked_boxes, **form_values))
    assert heading(text) == "Your new webhook"
    [secret] = re.findall(r'value="(whsec_[^"]+)"', text)
    [path] = set(re.findall(rf'href="[^"]*({WEBHOOKS_PATH}/\d+)"', text))
    return str(path), str(secret)


def texts_in_code(text: str) -> list[str]:
    return [html.unescape(each) for each in re.findall(r"<code>(.*?)</code>", text, re.DOTALL)]


def list_deliveries(console: OwnerAtConsole, path: str) -> list[list[str]]:
    """Return the event, subject, state and response of all deliveries on a webhook's page."""
    return [row[:4] for row in rows_of(console.see(path)) if row[0] != "Event"]


def list_states(console: OwnerAtConsole, path: str) -> list[str]:
    return [row[2] for row in list_deliveries(console, path)]


def test_console_creates_and_tests_and_pauses_and_rotates_and_deletes_a_webhook(
    console: OwnerAtConsole, stack: Stack, receiver: HookReceiver
) -> None:
    assert "No webhooks yet" in console.see(WEBHOOKS_PATH)
    receiver.answer = lambda _: (503, {"Retry-After": "3600"}) if len(receiver.hooks) == 1 else OK
    path, secret = create_webhook(console, url=receiver.url, **{f"type.{LEFT}": "on"})
    text = console.see(path)
    assert secret not in text
    assert "No deliveries yet." in text
    assert "The first delivery below shows the result of the test." in console.do(path)
    # A delivery attempt is counted at its start, before the response is known.
    eventually(lambda: list_deliveries(console, path)[0][3].startswith("503"), what="the response")
    [(event, subject, state, response)] = list_deliveries(console, path)
    assert (event, subject) == ("Test event", "")
    assert state.startswith("Waiting next in ")
    assert re.fullmatch(r"503, in [\d,]+ ms: taken", response)
    assert [
        row[1].startswith("Failing since") for row in rows_of(console.see(WEBHOOKS_PATH))[1:]
    ] == [True]
    assert "1 webhook is failing" in console.see(DEVELOPERS_PATH)

    [delivery_path] = re.findall(rf'href="[^"]*({path}/deliveries/\d+)"', console.see(path))
    _, form = forms_of(console.visitor.get(delivery_path))[-1]
    reply = console.visitor.client.post(f"{delivery_path}/resend", data=form)
    assert reply.status_code == 303
    eventually(
        lambda: list_states(console, path) == ["Delivered 2 attempts"], what="the second attempt"
    )
    assert receiver.hooks[0].id == receiver.hooks[1].id
    receiver.hooks[1].check(secret)
    announce_events(stack, console.owner, LEFT)
    eventually(lambda: len(list_deliveries(console, path)) == 2, what="an event")

    # The form for changing a webhook contains the webhook's current values.
    changes = {"type.credits.low": "on"}
    console.do(f"{path}/change", 0, (f"type.{LEFT}",), **changes)
    text = console.do(path, 1, state="paused")
    assert "The webhook is paused." in text
    assert "You paused this webhook." in text
    assert "Send a test event" not in text
    [endpoint] = data(console.api.get("/webhook-endpoints"))
    assert (endpoint["types"], endpoint["state"]) == (["credits.low"], "paused")
    assert read_page(console.visitor.client.post(f"{path}/test", data=form), 409)

    assert "The webhook gets events again" in console.do(path, state="active")
    assert data(console.api.get("/webhook-endpoints"))[0]["state"] == "active"
    assert console.visitor.get(f"{path}/state").headers["location"].endswith(path)

    text = read_page(console.send(f"{path}/rotate"))
    [new_secret] = re.findall(r'value="(whsec_[^"]+)"', text)
    assert new_secret != secret
    assert "was deleted" in console.do(f"{path}/end")
    assert data(console.api.get("/webhook-endpoints")) == []
    for page in ("", "/change", "/rotate", "/end"):
        console.see(path + page, 404)


def test_console_retries_all_waiting_deliveries_of_a_failing_webhook_at_once(
    console: OwnerAtConsole, stack: Stack, receiver: HookReceiver
) -> None:
    receiver.answer = lambda _: (503, {"Retry-After": "3600"})
    path, _ = create_webhook(console, url=receiver.url, **{f"type.{LEFT}": "on"})
    assert "Retry all now" not in console.see(path)
    console.do(path)
    eventually(lambda: "Retry all now" in console.see(path), what="the first failure")
    endpoint_id = path.rpartition("/")[2]
    add_deliveries = (
        "INSERT INTO webhook_deliveries (endpoint_id, event_type, due_at, last_attempt_at,"
        " status_code, milliseconds, attempts, round_attempts) SELECT %s, 'webhook.test',"
        " now() + interval '1 hour', now(), 503, 1, 1, 1 FROM generate_series(1, 30)"
    )
    stack.query(add_deliveries, endpoint_id)
    # The number includes the deliveries on later pages.
    text = console.see(path)
    assert "Your server responds with the status 503. 31 deliveries wait." in text
    assert "Show the 20 deliveries" in text
    given_up_at = "SELECT min(queued_at) FROM webhook_deliveries WHERE endpoint_id = %s"
    times_before = stack.query(given_up_at, endpoint_id)
    receiver.answer = lambda _: OK
    assert "The waiting events are being sent now" in console.do(path)
    assert stack.query(given_up_at, endpoint_id) == times_before
    eventually(lambda: len(receiver.hooks) == 32, what="all deliveries")
    eventually(lambda: "Retry all now" not in console.see(path), what="the recovery")


def test_console_shows_a_response_whose_duration_is_unknown(
    console: OwnerAtConsole, stack: Stack, receiver: HookReceiver
) -> None:
    endpoint = new_endpoint(console.api, receiver.url, LEFT)
    path = f"{WEBHOOKS_PATH}/{endpoint['id']}"
    add_delivery = (
        "INSERT INTO webhook_deliveries (endpoint_id, event_type, status, last_attempt_at,"
        " status_code, attempts) VALUES (%s, 'webhook.test', 'failed', now(), 503, 1)"
    )
    stack.query(add_delivery, endpoint["id"])
    assert '<td class="why">503</td>' in console.see(path)
    [delivery_path] = delivery_paths(console, path)
    assert "<p>503</p>" in console.see(delivery_path)


def test_row_of_an_expiring_key_leads_to_a_new_key(console: OwnerAtConsole) -> None:
    for name, days in (("soon", 6), ("later", 8)):
        expires_at = (datetime.now(UTC) + timedelta(days=days)).isoformat()
        data(console.api.post("/apikeys", json={"name": name, "expires_at": expires_at}))
    rows = {row[0].partition(" ")[0]: row[3] for row in rows_of(console.see(KEYS_PATH))[1:]}
    assert rows["soon"].endswith("Create a new key")
    assert "Create a new key" not in rows["later"]


def test_rows_of_broken_webhooks_have_their_next_step(
    console: OwnerAtConsole, stack: Stack, receiver: HookReceiver
) -> None:
    urls = (f"{receiver.url}/a", "http://127.0.0.1:9/b", f"{receiver.url}/c")
    paused, failing, _ = (new_endpoint(console.api, url, LEFT) for url in urls)
    data(console.api.patch(f"/webhook-endpoints/{paused['id']}", json={"state": "paused"}))
    receiver.answer = lambda _: (410, {})
    announce_events(stack, console.owner, LEFT)

    def list_steps() -> dict[str, str]:
        rows = rows_of(console.see(WEBHOOKS_PATH))[1:]
        return {row[0][-1]: row[1] for row in rows}

    steps = eventually(
        lambda: steps if "Disabled" in (steps := list_steps())["c"] else None, what="the end"
    )
    assert steps["a"] == "Paused Resume"
    assert steps["c"] == "Disabled Create a new webhook"
    eventually(lambda: "See what failed" in list_steps()["b"], what="the failure")
    text = console.see(WEBHOOKS_PATH)
    assert f'{WEBHOOKS_PATH}/{failing["id"]}#deliveries"' in text
    assert "The webhook gets events again" in console.do(WEBHOOKS_PATH, state="active")
    assert list_steps()["a"].startswith("Active")


def delivery_paths(console: OwnerAtConsole, path: str) -> list[str]:
    return re.findall(rf'href="[^"]*({path}/deliveries/\d+)"', console.see(path))


def test_console_rebuilds_the_request_of_a_delivery_without_its_signature(
    console: OwnerAtConsole, stack: Stack, receiver: HookReceiver
) -> None:
    receiver.body = b"<b>taken</b>" + b"." * 300
    endpoint = new_endpoint(console.api, receiver.url, LEFT)
    path = f"{WEBHOOKS_PATH}/{endpoint['id']}"
    announce_events(stack, console.owner, LEFT)
    eventually(lambda: list_states(console, path) == ["Delivered"], what="the delivery")
    [delivery_path] = delivery_paths(console, path)
    text = console.see(delivery_path)
    assert heading(text) == "Delivery: A member unsubscribed"
    assert "This request was built again from the event" in text
    [hook] = receiver.hooks
    response, headers, body = texts_in_code(text)[:3]
    assert json.loads(body) == hook.content
    rebuilt_headers = dict(line.split(": ", 1) for line in headers.lower().splitlines())
    sent_at = int(rebuilt_headers.pop("webhook-timestamp"))
    assert abs(sent_at - int(hook.headers["webhook-timestamp"])) <= 1
    assert rebuilt_headers == {
        name: hook.headers[name].lower() for name in ("content-type", "user-agent", "webhook-id")
    }
    assert "webhook-signature" not in text
    assert response == receiver.body.decode()
    assert "The event is being sent again." in console.do(delivery_path)
    eventually(lambda: len(receiver.hooks) == 2, what="the event again")
    # The database refuses to delete events that are younger than 30 days. To simulate a deleted
    # event, make the delivery refer to an event that doesn't exist.
    set_missing_event = "UPDATE webhook_deliveries SET event_id = %s WHERE endpoint_id = %s"
    stack.query(set_missing_event, MAX_ID, endpoint["id"])
    assert "because the event has been deleted" in console.see(delivery_path)
    other_endpoint = new_endpoint(console.api, receiver.url, LEFT)
    console.see(delivery_path.replace(str(endpoint["id"]), str(other_endpoint["id"])), 404)


def test_console_shows_no_request_about_an_erased_person(
    console: OwnerAtConsole, stack: Stack, reader: Reader, receiver: HookReceiver
) -> None:
    list_id = new_list(console.api)["id"]
    path = f"{WEBHOOKS_PATH}/{new_endpoint(console.api, receiver.url, CREATED)['id']}"
    reader.joins(list_id)
    eventually(lambda: receiver.hooks, what="the event")
    eventually(lambda: list_states(console, path) == ["Delivered"], what="the delivery")
    [delivery_path] = delivery_paths(console, path)
    assert reader.email in console.see(delivery_path)
    [(_, subject, *_)] = list_deliveries(console, path)
    assert subject.replace(" @", "@") == reader.email
    erase(stack.resources, reader.email)
    [(_, subject, *_)] = list_deliveries(console, path)
    assert subject == ""
    text = console.see(delivery_path)
    assert "because the person’s data was erased" in text
    assert not any("{" in each for each in texts_in_code(text))


def test_console_recommends_event_types_and_subscribes_to_whole_groups(
    console: OwnerAtConsole, receiver: HookReceiver
) -> None:
    new_webhook_path = f"{WEBHOOKS_PATH}/new"
    text = console.see(new_webhook_path)
    assert "&#34;type&#34;: &#34;subscription.created&#34;" in text
    [(_, form)] = forms_of(console.visitor.get(new_webhook_path))
    assert [name for name in form if name.startswith("type.")] == [*RECOMMENDED_BOXES]
    create_webhook(console, RECOMMENDED_BOXES[1:], url=receiver.url, **{"group.2": "on"})
    [endpoint] = data(console.api.get("/webhook-endpoints"))
    attachment_types = ["attachment.deleted", "attachment.failed", "attachment.ready"]
    assert sorted(endpoint["types"]) == [*attachment_types, "subscription.created"]


def test_console_shows_webhook_errors_next_to_their_fields(
    console: OwnerAtConsole, receiver: HookReceiver
) -> None:
    list_id = new_list(console.api, title="The <i>Daily</i>")["id"]
    new_webhook_path = f"{WEBHOOKS_PATH}/new"
    ticked_box = {f"type.{LEFT}": "on"}
    for url in ("", "example.com", "ftp://127.0.0.1/", "https://10.0.0.1/"):
        reply = console.send(new_webhook_path, url=url, list_id=str(list_id), **ticked_box)
        assert "url: " not in read_error(read_page(reply, 422), "url")
        [(_, form)] = forms_of(reply)
        assert (form["url"], form["list_id"]) == (url, str(list_id))
        assert form[f"type.{LEFT}"]
    text = read_page(console.send(new_webhook_path, 0, RECOMMENDED_BOXES, url=receiver.url), 422)
    assert 'id="types-wrong"' in text
    text = read_page(
        console.send(new_webhook_path, url=receiver.url, list_id="x", **ticked_box), 422
    )
    assert read_error(text, "list_id")
    read_page(console.send(new_webhook_path, url=receiver.url, list_id="1", **ticked_box), 404)
    assert data(console.api.get("/webhook-endpoints")) == []

    path, _ = create_webhook(console, url=receiver.url, list_id=str(list_id), **ticked_box)
    assert "The &lt;i&gt;Daily&lt;/i&gt;" in console.see(path)
    change_path = f"{path}/change"
    assert read_error(read_page(console.send(change_path, url="http://10.0.0.1/"), 422), "url")
    [endpoint] = data(console.api.get("/webhook-endpoints"))
    assert (endpoint["url"], endpoint["state"]) == (receiver.url, "active")


def event_rows(console: OwnerAtConsole, **query: str) -> list[list[str]]:
    """Return the rows of the events page that show an event, without the rows that show a day."""
    rows = [row for row in rows_of(console.see(EVENTS_PATH, **query))[1:] if len(row) > 1]
    # The cell of the type also contains the event as JSON.
    return [[*row[:2], row[2].partition("{")[0].strip(), *row[3:]] for row in rows]


def test_console_shows_the_newest_events_in_words_and_filters_them_by_type(
    console: OwnerAtConsole, stack: Stack
) -> None:
    create_key(console, Scope.COMPOSER)
    list_id = new_list(console.api)["id"]
    announce_events(stack, console.owner, LEFT, list_id=list_id)

    # An event is not shown while an older transaction of another test is open.
    eventually(lambda: any(row[2] == LEFT for row in event_rows(console)), what="the event")
    assert next(row for row in event_rows(console) if row[2] == LEFT)[::2] == [
        "A member unsubscribed",
        LEFT,
    ]
    rows = event_rows(console, type="key.created")
    assert {row[2] for row in rows} == {"key.created"}
    text = console.see(EVENTS_PATH, type="key.created")
    [call] = calls_of(text)
    events = data(console.api.get(call.path))["items"]
    assert len(events) == len(rows)
    shown_events = re.findall(r'<pre tabindex="0"><code>({.*?})</code>', text, re.DOTALL)
    assert [json.loads(html.unescape(each)) for each in shown_events] == events[::-1]
    assert "No matching events" in console.see(EVENTS_PATH, type="order.disputed")


def form_values_at(time: datetime) -> dict[str, str]:
    """Return the day and time that an owner enters in the replay form."""
    return {"day": time.date().isoformat(), "time": f"{time:%H:%M}"}


def one_hour_ago() -> dict[str, str]:
    return form_values_at(datetime.now(UTC) - timedelta(hours=1))


def test_console_replays_webhook_events_since_a_chosen_time_with_their_original_ids(
    console: OwnerAtConsole, receiver: HookReceiver, stack: Stack
) -> None:
    endpoint = new_endpoint(console.api, receiver.url)
    path = f"{WEBHOOKS_PATH}/{endpoint['id']}"
    announce_events(stack, console.owner, count=3)
    announce_events(stack, console.owner, LEFT)
    eventually(lambda: len(receiver.hooks) >= 4, what="the events")
    assert f'href="{stack.api_url}{path}/replay"' in console.see(path)

    text = console.see(f"{path}/replay", **one_hour_ago())
    assert heading(text) == "Replay events"
    assert "Replay 4 events?" in text
    [call] = calls_of(text)
    assert call.path == f"/webhook-endpoints/{endpoint['id']}/replay"
    replay_start = datetime.fromisoformat(call.body["since"])
    assert form_values_at(replay_start) == form_values_at(
        replay_start.replace(second=0, microsecond=0)
    )
    assert replay_start < datetime.now(UTC)

    receiver.hooks.clear()
    [(action, form), _] = forms_of(console.visitor.get(f"{path}/replay", **one_hour_ago()))
    assert receiver.hooks == []
    reply = console.visitor.client.post(action, data=form)
    assert reply.status_code == 303, reply.text
    text = read_page(console.visitor.client.get(reply.headers["location"]))
    assert "The events are being sent again, oldest first." in text
    all_event_ids = event_ids(stack, console.owner)
    eventually(lambda: len(receiver.hooks) >= 4, what="all events again")
    assert receiver.ids == all_event_ids


def test_console_replay_counts_only_events_that_the_webhook_receives(
    console: OwnerAtConsole, receiver: HookReceiver, stack: Stack
) -> None:
    list_id = new_list(console.api)["id"]
    other_list_id = new_list(console.api)["id"]
    endpoint = new_endpoint(console.api, receiver.url, CREATED, list_id=list_id)
    path = f"{WEBHOOKS_PATH}/{endpoint['id']}/replay"
    announce_events(stack, console.owner, LEFT, list_id=list_id)
    announce_events(stack, console.owner, list_id=other_list_id)
    assert "The webhook has no events since this time." in console.see(path, **one_hour_ago())
    announce_events(stack, console.owner, list_id=list_id)
    assert "Replay 1 event?" in console.see(path, **one_hour_ago())
    in_one_hour = form_values_at(datetime.now(UTC) + timedelta(hours=1))
    assert "The webhook has no events since this time." in console.see(path, **in_one_hour)


def test_console_replay_shows_more_than_1000_events_without_an_exact_number(
    console: OwnerAtConsole, receiver: HookReceiver, stack: Stack
) -> None:
    endpoint = new_endpoint(console.api, receiver.url, LEFT)
    data(console.api.patch(f"/webhook-endpoints/{endpoint['id']}", json={"state": "paused"}))
    path = f"{WEBHOOKS_PATH}/{endpoint['id']}/replay"
    stack.query(
        "INSERT INTO feed_events (user_id, type) SELECT %s, %s FROM generate_series(1, %s)",
        console.owner.user_id,
        LEFT.value,
        MAX_COUNTED_EVENTS,
    )
    assert "Replay 1,000 events?" in console.see(path, **one_hour_ago())
    announce_events(stack, console.owner, LEFT)
    text = console.see(path, **one_hour_ago())
    assert "Replay more than 1,000 events?" in text
    # Events can't be sent again to a paused webhook.
    assert "The webhook isn’t active" in text
    assert len(forms_of(console.visitor.get(path, **one_hour_ago()))) == 1


def test_console_replay_rejects_an_invalid_time(
    console: OwnerAtConsole, receiver: HookReceiver, stack: Stack
) -> None:
    endpoint = new_endpoint(console.api, receiver.url)
    path = f"{WEBHOOKS_PATH}/{endpoint['id']}/replay"
    announce_events(stack, console.owner)
    eventually(lambda: receiver.hooks, what="the event")
    form = forms_of(console.visitor.get(path, **one_hour_ago()))[0][1]
    for field_name, invalid_value in (
        ("day", "2026-02-30"),
        ("time", "25:00"),
        ("time", "14:00+02:00"),
    ):
        page = console.visitor.get(path, **{**one_hour_ago(), field_name: invalid_value})
        assert read_error(read_page(page, 422), field_name)
        reply = console.visitor.client.post(path, data={**form, field_name: invalid_value})
        assert read_error(read_page(reply, 422), field_name)
    # No event can have happened since 9999-12-31.
    reply = console.visitor.client.post(path, data={**form, "day": "9999-12-31"})
    assert "no events since this time" in read_error(read_page(reply, 422), "day")
    assert len(receiver.hooks) == 1


def test_console_groups_similar_events_in_one_row_per_day(console: OwnerAtConsole) -> None:
    list_id = new_list(console.api)["id"]
    for values in ({}, {"name": "A"}, {"name": "B"}, {"name": "C"}):
        put_member(console.api, list_id, "ada@example.com", **values)
    row_text = "A member was changed: name, 3 times"
    eventually(lambda: any(row[0] == row_text for row in event_rows(console)), what="the events")
    assert rows_of(console.see(EVENTS_PATH))[1] == [format_day(datetime.now(UTC))]
