"""What a receiver gets: signed events in order, tried again, resent and replayed."""

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest
from standardwebhooks import WebhookVerificationError

from devstack.harness.polling import eventually
from devstack.harness.stack import Owner, Stack
from services.webhooks.deliveries import MAX_PENDING, MAX_PENDING_REQUESTED
from services.webhooks.signing import MAX_LIVE_SECRETS
from tests.support.http.replies import data, problem, walk_pages
from tests.support.http.webhook_receiver import (
    CREATED,
    LEFT,
    OK,
    Hook,
    HookReceiver,
    event_ids,
    happen,
    hooked,
    let_pauses_pass,
    new_endpoint,
)
from tests.support.lists.subscribers import new_list

PATH = "/webhook-endpoints"
PENDING = "SELECT id FROM webhook_deliveries WHERE endpoint_id = %s AND status = 'pending'"


def deliveries(client: httpx2.Client, endpoint: dict[str, Any]) -> list[dict[str, Any]]:
    return list(data(client.get(f"{PATH}/{endpoint['id']}/deliveries"))["items"])


def are_delivered(client: httpx2.Client, endpoint: dict[str, Any], count: int) -> bool:
    return [each["status"] for each in deliveries(client, endpoint)] == ["delivered"] * count


def until_followers_see_it(client: httpx2.Client) -> None:
    """While an older transaction of another test is open, the event counts as one to come."""
    query = {"type": CREATED.value}
    eventually(lambda: data(client.get("/events", params=query))["items"], what="the event")


def shown(client: httpx2.Client, endpoint: dict[str, Any]) -> dict[str, Any]:
    return dict(data(client.get(f"{PATH}/{endpoint['id']}")))


def test_webhook_events_arrive_signed_and_in_feed_order(
    stack: Stack, owner: Owner, client: httpx2.Client, receiver: HookReceiver
) -> None:
    happen(stack, owner)
    until_followers_see_it(client)
    endpoint = new_endpoint(client, receiver.url)
    happen(stack, owner, count=5)
    happen(stack, owner, LEFT)
    expected = event_ids(stack, owner)[1:]
    eventually(lambda: len(receiver.hooks) >= 6, what="all events")
    # What was before the endpoint is not sent.
    assert receiver.ids == expected
    for hook in receiver.hooks:
        hook.check(endpoint["secret"])
        with pytest.raises(WebhookVerificationError):
            hook.check("whsec_" + "A" * 44)
    content = receiver.hooks[-1].content
    assert set(content) == {"type", "timestamp", "data"}
    assert content["type"] == content["data"]["type"] == LEFT
    assert content["timestamp"] == content["data"]["occurred_at"]
    assert content["data"]["data"]["user_id"] == owner.user_id
    assert receiver.hooks[0].headers["content-type"] == "application/json"
    eventually(lambda: are_delivered(client, endpoint, 6), what="all answers")
    done = deliveries(client, endpoint)
    assert [f"evt_{each['event_id']}" for each in reversed(done)] == expected
    jobs = "SELECT count(*) FROM jobs WHERE kind = 'webhook.send' AND subject_id = %s"
    assert stack.query(jobs, endpoint["id"]) == [(1,)]
    newest = done[0]
    assert (newest["status_code"], newest["answer"], newest["attempts"]) == (200, "taken", 1)
    assert (newest["next_attempt_at"], newest["error"]) == (None, None)
    assert newest["milliseconds"] >= 0


def test_webhook_receiver_that_closes_connections_loses_no_event(
    stack: Stack, owner: Owner, client: httpx2.Client, receiver: HookReceiver
) -> None:
    receiver.closes_silently = True
    endpoint = new_endpoint(client, receiver.url)
    data(client.patch(f"{PATH}/{endpoint['id']}", json={"state": "paused"}))
    happen(stack, owner, count=20)
    data(client.patch(f"{PATH}/{endpoint['id']}", json={"state": "active"}))
    eventually(lambda: are_delivered(client, endpoint, 20), what="all answers")
    assert receiver.ids == event_ids(stack, owner)
    assert {each["attempts"] for each in deliveries(client, endpoint)} == {1}


def test_webhook_receives_only_its_event_types_and_list(
    stack: Stack, owner: Owner, client: httpx2.Client, receiver: HookReceiver
) -> None:
    list_id = new_list(client)["id"]
    other_id = new_list(client)["id"]
    new_endpoint(client, receiver.url, CREATED, list_id=list_id)
    before = len(event_ids(stack, owner, CREATED))
    happen(stack, owner, CREATED, list_id=other_id)
    happen(stack, owner, LEFT, list_id=list_id)
    happen(stack, stack.create_owner(), CREATED, list_id=list_id)
    happen(stack, owner, CREATED, list_id=list_id)
    eventually(lambda: receiver.hooks, what="the event")
    assert receiver.ids == event_ids(stack, owner, CREATED)[before + 1 :]


@pytest.mark.tier("processes")
def test_failed_webhook_delivery_is_retried_with_the_same_id_before_the_next_event(
    stack: Stack, owner: Owner, client: httpx2.Client, receiver: HookReceiver
) -> None:
    receiver.answer = lambda _: (500, {}) if len(receiver.hooks) == 1 else OK
    endpoint = new_endpoint(client, receiver.url)
    happen(stack, owner, count=2)
    first, second = event_ids(stack, owner)[-2:]
    eventually(lambda: receiver.hooks, what="the first try")
    # Five seconds from when the try was counted, which is shortly before the receiver has it.
    pause = "SELECT due_at - last_attempt_at FROM webhook_deliveries WHERE endpoint_id = %s"
    [(seconds,)] = stack.query(f"{pause} AND attempts = 1", endpoint["id"])
    assert seconds >= timedelta(seconds=5)  # type: ignore[operator]
    eventually(lambda: len(receiver.hooks) >= 3, what="the second try", within=30)
    assert receiver.ids == [first, first, second]
    assert receiver.hooks[1].at - receiver.hooks[0].at > 4
    for hook in receiver.hooks:
        hook.check(endpoint["secret"])
    assert deliveries(client, endpoint)[1]["attempts"] == 2


@pytest.mark.tier("faults")
def test_failed_webhook_delivery_among_many_keeps_the_order_of_all_events(
    stack: Stack, owner: Owner, client: httpx2.Client, receiver: HookReceiver
) -> None:
    endpoint = new_endpoint(client, receiver.url)
    path = f"{PATH}/{endpoint['id']}"
    data(client.patch(path, json={"state": "paused"}))
    happen(stack, owner, count=60)
    expected = event_ids(stack, owner)[-60:]
    # Late enough that several deliveries are claimed at once, and others after the one that fails.
    bad = expected[34]
    receiver.answer = lambda hook: (
        (500, {}) if hook.id == bad and receiver.ids.count(bad) == 1 else OK
    )
    data(client.patch(path, json={"state": "active"}))
    eventually(lambda: bad in receiver.ids, what="the failure")
    eventually(lambda: shown(client, endpoint)["failing_since"], what="the failure's row")
    assert receiver.ids == expected[:35]
    [(tries,)] = stack.query(
        "SELECT count(*) FROM webhook_deliveries"
        " WHERE endpoint_id = %s AND (attempts, round_attempts) <> (0, 0)",
        endpoint["id"],
    )
    assert tries == 35
    let_pauses_pass(stack, endpoint["id"])
    eventually(lambda: len(receiver.hooks) == 61, what="all events")
    assert receiver.ids == [*expected[:35], *expected[34:]]
    tried = "SELECT attempts FROM webhook_deliveries WHERE endpoint_id = %s ORDER BY id"
    eventually(lambda: not stack.query(f"{PENDING} LIMIT 1", endpoint["id"]), what="all answers")
    attempts = [count for (count,) in stack.query(tried, endpoint["id"])]
    assert attempts == [1] * 34 + [2] + [1] * 25


def test_webhook_retry_respects_the_retry_after_header(
    stack: Stack, owner: Owner, client: httpx2.Client, receiver: HookReceiver
) -> None:
    receiver.answer = lambda _: (503, {"Retry-After": "3600"})
    endpoint = new_endpoint(client, receiver.url)
    happen(stack, owner)
    found = eventually(
        lambda: next((each for each in deliveries(client, endpoint) if each["status_code"]), None),
        what="the first answer",
    )
    tried, again = map(datetime.fromisoformat, (found["last_attempt_at"], found["next_attempt_at"]))
    assert timedelta(minutes=59) < again - tried < timedelta(minutes=61)
    assert (found["status"], found["status_code"]) == ("pending", 503)
    assert shown(client, endpoint)["failing_since"] is not None


def test_response_410_ends_the_webhook_endpoint_and_notifies_the_owner(
    stack: Stack, owner: Owner, client: httpx2.Client, receiver: HookReceiver
) -> None:
    receiver.answer = lambda _: (410, {})
    endpoint = new_endpoint(client, receiver.url)
    happen(stack, owner, count=3)
    eventually(lambda: shown(client, endpoint)["state"] == "ended", what="the end")
    assert len(receiver.hooks) == 1
    assert "410" in shown(client, endpoint)["reason"]
    path = f"{PATH}/{endpoint['id']}"
    problem(client.patch(path, json={"state": "active"}), 409, "webhook.ended")
    problem(client.post(f"{path}/rotate"), 409, "webhook.ended")
    stopped = eventually(lambda: _mails(stack, owner, "stopped"), what="the mail")
    assert f"endpoint {endpoint['id']} was permanently disabled" in stopped[0]["text"]


@pytest.mark.tier("faults")
def test_response_410_of_a_replaced_url_does_not_end_the_webhook_endpoint(
    stack: Stack, owner: Owner, client: httpx2.Client, receiver: HookReceiver
) -> None:
    with hooked() as former, stack.client(owner.key) as other:
        endpoint = new_endpoint(client, former.url)
        path = f"{PATH}/{endpoint['id']}"

        def move(_: Hook) -> tuple[int, dict[str, str]]:
            data(other.patch(path, json={"url": receiver.url}))
            return 410, {}

        former.answer = move
        happen(stack, owner)
        # The try that is under way is made again, at the new URL.
        eventually(lambda: receiver.hooks, what="the event at the new URL", within=30)
        assert receiver.ids == former.ids
    assert shown(client, endpoint)["state"] == "active"


def test_webhook_endpoint_failing_for_three_days_is_paused_and_gets_missed_events_later(
    stack: Stack, owner: Owner, client: httpx2.Client, receiver: HookReceiver
) -> None:
    receiver.answer = lambda _: (500, {})
    endpoint = new_endpoint(client, receiver.url)
    happen(stack, owner)
    eventually(lambda: shown(client, endpoint)["failing_since"], what="the first failure")
    # So the last try of this event, which is three days after it was queued, pauses the endpoint.
    exact = (
        "SELECT failing_since = queued_at FROM webhook_deliveries AS delivery"
        " JOIN webhook_endpoints AS endpoint ON endpoint.id = endpoint_id WHERE endpoint.id = %s"
    )
    assert stack.query(exact, endpoint["id"]) == [(True,)]
    stack.query(
        "UPDATE webhook_endpoints SET failing_since = now() - interval '3 days' WHERE id = %s",
        endpoint["id"],
    )
    let_pauses_pass(stack, endpoint["id"])
    eventually(lambda: shown(client, endpoint)["state"] == "paused", what="the pause")
    assert "three days" in shown(client, endpoint)["reason"]
    assert eventually(lambda: _mails(stack, owner, "stopped"), what="the mail")
    happen(stack, owner)
    missed = event_ids(stack, owner)[-2:]
    receiver.hooks.clear()
    receiver.answer = lambda _: OK
    data(client.patch(f"{PATH}/{endpoint['id']}", json={"state": "active"}))
    eventually(lambda: len(receiver.hooks) >= 2, what="what was missed")
    assert receiver.ids == missed


def test_webhook_event_rejected_for_three_days_is_dropped_and_later_events_arrive(
    stack: Stack, owner: Owner, client: httpx2.Client, receiver: HookReceiver
) -> None:
    receiver.answer = lambda hook: (422, {}) if hook.id == receiver.ids[0] else OK
    endpoint = new_endpoint(client, receiver.url)
    happen(stack, owner)
    eventually(lambda: shown(client, endpoint)["failing_since"], what="the first failure")
    # The next event waits for it no longer.
    _pass_time(stack, endpoint, "2 hours")
    happen(stack, owner)
    eventually(
        lambda: deliveries(client, endpoint)[0]["status"] == "delivered", what="the next event"
    )
    assert shown(client, endpoint)["failing_since"] is None
    _pass_time(stack, endpoint, "70 hours")
    let_pauses_pass(stack, endpoint["id"])
    eventually(lambda: deliveries(client, endpoint)[1]["status"] == "failed", what="the end")
    happen(stack, owner)
    eventually(
        lambda: (
            [each["status"] for each in deliveries(client, endpoint)]
            == ["delivered", "delivered", "failed"]
        ),
        what="the last event",
    )
    assert shown(client, endpoint)["state"] == "active"


def test_old_and_new_webhook_secrets_both_sign_until_the_old_one_expires(
    stack: Stack, client: httpx2.Client, receiver: HookReceiver
) -> None:
    endpoint = new_endpoint(client, receiver.url)
    path = f"{PATH}/{endpoint['id']}"
    new = data(client.post(f"{path}/rotate"))["secret"]
    data(client.post(f"{path}/test"))
    eventually(lambda: receiver.hooks, what="the test event")
    [hook] = receiver.hooks
    assert len(hook.headers["webhook-signature"].split(" ")) == 2
    hook.check(endpoint["secret"])
    hook.check(new)
    # It tells of nothing that happened.
    assert (hook.content["type"], hook.content["data"]["id"]) == ("webhook.test", None)
    assert hook.id.startswith("test_")
    stack.query(
        "UPDATE webhook_secrets SET expires_at = now() WHERE expires_at IS NOT NULL"
        " AND endpoint_id = %s",
        endpoint["id"],
    )
    data(client.post(f"{path}/test"))
    eventually(lambda: len(receiver.hooks) == 2, what="another test event")
    receiver.hooks[1].check(new)
    with pytest.raises(WebhookVerificationError):
        receiver.hooks[1].check(endpoint["secret"])


def test_webhook_endpoint_has_a_maximum_number_of_live_secrets(
    stack: Stack, client: httpx2.Client, receiver: HookReceiver
) -> None:
    endpoint = new_endpoint(client, receiver.url)
    path = f"{PATH}/{endpoint['id']}"
    for _ in range(MAX_LIVE_SECRETS - 1):
        newest = data(client.post(f"{path}/rotate"))["secret"]
    problem(client.post(f"{path}/rotate"), 409, "webhook.too_many_secrets")
    data(client.post(f"{path}/test"))
    eventually(lambda: receiver.hooks, what="the test event")
    for secret in (endpoint["secret"], newest):
        receiver.hooks[0].check(secret)
    ends = "UPDATE webhook_secrets SET expires_at = now() WHERE endpoint_id = %s AND id = ("
    ends += "SELECT min(id) FROM webhook_secrets WHERE endpoint_id = %s)"
    stack.query(ends, endpoint["id"], endpoint["id"])
    assert data(client.post(f"{path}/rotate"))["secret"]


def test_webhook_resend_and_replay_deliver_events_again_with_their_original_ids(
    stack: Stack, owner: Owner, client: httpx2.Client, receiver: HookReceiver
) -> None:
    happen(stack, owner)
    until_followers_see_it(client)
    endpoint = new_endpoint(client, receiver.url)
    path = f"{PATH}/{endpoint['id']}"
    happen(stack, owner, count=2)
    eventually(lambda: len(receiver.hooks) == 2, what="both events")
    eventually(lambda: are_delivered(client, endpoint, 2), what="both answers")
    again = deliveries(client, endpoint)[1]
    sent = data(client.post(f"{path}/deliveries/{again['id']}/resend"))
    assert sent["status"] == "pending"
    eventually(lambda: len(receiver.hooks) == 3, what="the event again")
    assert receiver.ids[2] == f"evt_{again['event_id']}"
    receiver.hooks.clear()
    since = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    assert data(client.post(f"{path}/replay", json={"since": since})) == 1
    # Also what happened before the endpoint was made.
    everything = event_ids(stack, owner)
    eventually(lambda: len(receiver.hooks) >= len(everything), what="all events")
    assert receiver.ids == everything
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    assert data(client.post(f"{path}/replay", json={"since": later})) == 0


def test_webhook_tests_and_resends_are_limited_while_the_receiver_fails(
    stack: Stack, client: httpx2.Client, receiver: HookReceiver
) -> None:
    receiver.answer = lambda _: (503, {"Retry-After": "3600"})
    endpoint = new_endpoint(client, receiver.url)
    path = f"{PATH}/{endpoint['id']}"
    first = data(client.post(f"{path}/test"))
    eventually(lambda: deliveries(client, endpoint)[0]["status_code"], what="the first answer")
    rows = (
        "INSERT INTO webhook_deliveries (endpoint_id, event_type, due_at, status)"
        " SELECT %s, 'webhook.test', now() + interval '1 hour', %s FROM generate_series(1, %s)"
    )
    stack.query(rows, endpoint["id"], "pending", MAX_PENDING_REQUESTED - 2)
    stack.query(rows, endpoint["id"], "delivered", 1)
    done = next(each for each in deliveries(client, endpoint) if each["status"] == "delivered")
    data(client.post(f"{path}/test"))
    again = f"{path}/deliveries/{done['id']}/resend"
    for refused in (f"{path}/test", again):
        problem(client.post(refused), 409, "webhook.too_many_pending")
    # What waits already may be sent at once.
    data(client.post(f"{path}/deliveries/{first['id']}/resend"))
    stack.query(
        "UPDATE webhook_deliveries SET status = 'failed' WHERE status = 'pending'"
        " AND endpoint_id = %s",
        endpoint["id"],
    )
    assert data(client.post(again))["status"] == "pending"


def test_new_webhook_events_wait_while_the_maximum_of_deliveries_is_pending(
    stack: Stack, owner: Owner, client: httpx2.Client, receiver: HookReceiver
) -> None:
    endpoint = new_endpoint(client, receiver.url)
    stack.query(
        "INSERT INTO webhook_deliveries (endpoint_id, event_type, queued_at, due_at)"
        " SELECT %s, 'webhook.test', now() - interval '2 hours', now() + interval '1 hour'"
        " FROM generate_series(1, %s)",
        endpoint["id"],
        MAX_PENDING,
    )
    happen(stack, owner)
    is_held = "SELECT id FROM webhook_endpoints WHERE id = %s AND is_held"
    eventually(lambda: stack.query(is_held, endpoint["id"]), what="the full endpoint")
    assert receiver.ids == []
    stack.query(
        "UPDATE webhook_endpoints SET due_at = now() WHERE id = %s;"
        "UPDATE webhook_deliveries SET status = 'failed'"
        " WHERE id = (SELECT max(id) FROM webhook_deliveries WHERE endpoint_id = %s)",
        endpoint["id"],
        endpoint["id"],
    )
    eventually(lambda: receiver.ids, what="the event")
    assert receiver.ids == event_ids(stack, owner)[-1:]


def test_webhook_delivery_pages_return_each_delivery_exactly_once(
    stack: Stack, owner: Owner, client: httpx2.Client, receiver: HookReceiver
) -> None:
    endpoint = new_endpoint(client, receiver.url)
    happen(stack, owner, count=3)
    eventually(lambda: len(deliveries(client, endpoint)) == 3, what="all deliveries")
    seen = walk_pages(client, f"{PATH}/{endpoint['id']}/deliveries", limit=2)
    assert [each["id"] for each in seen] == [each["id"] for each in deliveries(client, endpoint)]


def test_deleted_webhook_endpoint_receives_no_more_events(
    stack: Stack, owner: Owner, client: httpx2.Client, receiver: HookReceiver
) -> None:
    gone = new_endpoint(client, receiver.url)
    stays = new_endpoint(client, receiver.url)
    data(client.delete(f"{PATH}/{gone['id']}"))
    happen(stack, owner)
    eventually(lambda: receiver.hooks, what="the event")
    eventually(
        lambda: deliveries(client, stays)[0]["status"] == "delivered", what="the other's answer"
    )
    [hook] = receiver.hooks
    hook.check(stays["secret"])


def test_webhook_urls_never_appear_in_logs(
    stack: Stack, owner: Owner, client: httpx2.Client, receiver: HookReceiver
) -> None:
    endpoint = new_endpoint(client, f"{receiver.url}/T0KEN-of-the-receiver")
    happen(stack, owner)
    eventually(lambda: are_delivered(client, endpoint, 1), what="the answer")
    logs = [each.log.read_text(errors="replace") for each in stack.processes]
    assert any(logs)
    assert not any("T0KEN-of-the-receiver" in each for each in logs)


def _pass_time(stack: Stack, endpoint: dict[str, Any], interval: str) -> None:
    """Since what was queued and failed so much time passed."""
    stack.query(
        "UPDATE webhook_endpoints SET due_at = now(),"
        " failing_since = failing_since - CAST(%s AS interval) WHERE id = %s;"
        "UPDATE webhook_deliveries SET queued_at = queued_at - CAST(%s AS interval)"
        " WHERE endpoint_id = %s",
        *(interval, endpoint["id"], interval, endpoint["id"]),
    )


def _mails(stack: Stack, owner: Owner, word: str) -> list[dict[str, Any]]:
    return [each for each in stack.mails(owner.email) if word in each["subject"]]
