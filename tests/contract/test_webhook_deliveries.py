"""Tests of webhook deliveries: their order, signatures, retries, resends and replays."""

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
    announce_events,
    end_retry_pauses,
    event_ids,
    new_endpoint,
    running_receiver,
)
from tests.support.lists.subscribers import new_list

ENDPOINTS_PATH = "/webhook-endpoints"
SELECT_PENDING = "SELECT id FROM webhook_deliveries WHERE endpoint_id = %s AND status = 'pending'"


def list_deliveries(client: httpx2.Client, endpoint: dict[str, Any]) -> list[dict[str, Any]]:
    return list(data(client.get(f"{ENDPOINTS_PATH}/{endpoint['id']}/deliveries"))["items"])


def are_delivered(client: httpx2.Client, endpoint: dict[str, Any], count: int) -> bool:
    return [each["status"] for each in list_deliveries(client, endpoint)] == ["delivered"] * count


def wait_until_event_is_visible(client: httpx2.Client) -> None:
    """Wait until the event feed shows the event.

    The feed hides a new event as long as an older database transaction is open.
    """
    query = {"type": CREATED.value}
    eventually(lambda: data(client.get("/events", params=query))["items"], what="the event")


def read_endpoint(client: httpx2.Client, endpoint: dict[str, Any]) -> dict[str, Any]:
    return dict(data(client.get(f"{ENDPOINTS_PATH}/{endpoint['id']}")))


def test_webhook_events_arrive_signed_and_in_feed_order(
    stack: Stack, owner: Owner, client: httpx2.Client, receiver: HookReceiver
) -> None:
    announce_events(stack, owner)
    wait_until_event_is_visible(client)
    endpoint = new_endpoint(client, receiver.url)
    announce_events(stack, owner, count=5)
    announce_events(stack, owner, LEFT)
    expected_ids = event_ids(stack, owner)[1:]
    eventually(lambda: len(receiver.hooks) >= 6, what="all events")
    # Events from before the endpoint was created aren't sent.
    assert receiver.ids == expected_ids
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
    finished_deliveries = list_deliveries(client, endpoint)
    assert [f"evt_{each['event_id']}" for each in reversed(finished_deliveries)] == expected_ids
    count_jobs = "SELECT count(*) FROM jobs WHERE kind = 'webhook.send' AND subject_id = %s"
    assert stack.query(count_jobs, endpoint["id"]) == [(1,)]
    newest_delivery = finished_deliveries[0]
    assert (
        newest_delivery["status_code"],
        newest_delivery["answer"],
        newest_delivery["attempts"],
    ) == (200, "taken", 1)
    assert (newest_delivery["next_attempt_at"], newest_delivery["error"]) == (None, None)
    assert newest_delivery["milliseconds"] >= 0


def test_webhook_receiver_that_closes_connections_loses_no_event(
    stack: Stack, owner: Owner, client: httpx2.Client, receiver: HookReceiver
) -> None:
    receiver.closes_silently = True
    endpoint = new_endpoint(client, receiver.url)
    data(client.patch(f"{ENDPOINTS_PATH}/{endpoint['id']}", json={"state": "paused"}))
    announce_events(stack, owner, count=20)
    data(client.patch(f"{ENDPOINTS_PATH}/{endpoint['id']}", json={"state": "active"}))
    eventually(lambda: are_delivered(client, endpoint, 20), what="all answers")
    assert receiver.ids == event_ids(stack, owner)
    assert {each["attempts"] for each in list_deliveries(client, endpoint)} == {1}


def test_webhook_receives_only_its_event_types_and_list(
    stack: Stack, owner: Owner, client: httpx2.Client, receiver: HookReceiver
) -> None:
    list_id = new_list(client)["id"]
    other_list_id = new_list(client)["id"]
    new_endpoint(client, receiver.url, CREATED, list_id=list_id)
    count_before = len(event_ids(stack, owner, CREATED))
    announce_events(stack, owner, CREATED, list_id=other_list_id)
    announce_events(stack, owner, LEFT, list_id=list_id)
    announce_events(stack, stack.create_owner(), CREATED, list_id=list_id)
    announce_events(stack, owner, CREATED, list_id=list_id)
    eventually(lambda: receiver.hooks, what="the event")
    assert receiver.ids == event_ids(stack, owner, CREATED)[count_before + 1 :]


@pytest.mark.tier("processes")
def test_failed_webhook_delivery_is_retried_with_the_same_id_before_the_next_event(
    stack: Stack, owner: Owner, client: httpx2.Client, receiver: HookReceiver
) -> None:
    receiver.answer = lambda _: (500, {}) if len(receiver.hooks) == 1 else OK
    endpoint = new_endpoint(client, receiver.url)
    announce_events(stack, owner, count=2)
    first_id, second_id = event_ids(stack, owner)[-2:]
    eventually(lambda: receiver.hooks, what="the first try")
    # Between the attempts is a pause of five seconds. The pause begins before the receiver gets the
    # first request, so less than five seconds can pass between the two requests at the receiver.
    select_pause = "SELECT due_at - last_attempt_at FROM webhook_deliveries WHERE endpoint_id = %s"
    [(pause_length,)] = stack.query(f"{select_pause} AND attempts = 1", endpoint["id"])
    assert pause_length >= timedelta(seconds=5)  # type: ignore[operator]
    eventually(lambda: len(receiver.hooks) >= 3, what="the second try", within=30)
    assert receiver.ids == [first_id, first_id, second_id]
    assert receiver.hooks[1].at - receiver.hooks[0].at > 4
    for hook in receiver.hooks:
        hook.check(endpoint["secret"])
    assert list_deliveries(client, endpoint)[1]["attempts"] == 2


@pytest.mark.tier("faults")
def test_failed_webhook_delivery_among_many_keeps_the_order_of_all_events(
    stack: Stack, owner: Owner, client: httpx2.Client, receiver: HookReceiver
) -> None:
    endpoint = new_endpoint(client, receiver.url)
    path = f"{ENDPOINTS_PATH}/{endpoint['id']}"
    data(client.patch(path, json={"state": "paused"}))
    announce_events(stack, owner, count=60)
    expected_ids = event_ids(stack, owner)[-60:]
    # Let the delivery of the 35th event fail. A worker claims the delivery of the 35th event
    # together with the deliveries of earlier and later events.
    failing_id = expected_ids[34]
    receiver.answer = lambda hook: (
        (500, {}) if hook.id == failing_id and receiver.ids.count(failing_id) == 1 else OK
    )
    data(client.patch(path, json={"state": "active"}))
    eventually(lambda: failing_id in receiver.ids, what="the failure")
    eventually(lambda: read_endpoint(client, endpoint)["failing_since"], what="the failure's row")
    assert receiver.ids == expected_ids[:35]
    [(attempted_count,)] = stack.query(
        "SELECT count(*) FROM webhook_deliveries"
        " WHERE endpoint_id = %s AND (attempts, round_attempts) <> (0, 0)",
        endpoint["id"],
    )
    assert attempted_count == 35
    end_retry_pauses(stack, endpoint["id"])
    eventually(lambda: len(receiver.hooks) == 61, what="all events")
    assert receiver.ids == [*expected_ids[:35], *expected_ids[34:]]
    select_attempts = "SELECT attempts FROM webhook_deliveries WHERE endpoint_id = %s ORDER BY id"
    eventually(
        lambda: not stack.query(f"{SELECT_PENDING} LIMIT 1", endpoint["id"]), what="all answers"
    )
    attempts = [count for (count,) in stack.query(select_attempts, endpoint["id"])]
    assert attempts == [1] * 34 + [2] + [1] * 25


def test_webhook_retry_respects_the_retry_after_header(
    stack: Stack, owner: Owner, client: httpx2.Client, receiver: HookReceiver
) -> None:
    receiver.answer = lambda _: (503, {"Retry-After": "3600"})
    endpoint = new_endpoint(client, receiver.url)
    announce_events(stack, owner)
    delivery = eventually(
        lambda: next(
            (each for each in list_deliveries(client, endpoint) if each["status_code"]), None
        ),
        what="the first answer",
    )
    attempted_at, retry_at = map(
        datetime.fromisoformat, (delivery["last_attempt_at"], delivery["next_attempt_at"])
    )
    assert timedelta(minutes=59) < retry_at - attempted_at < timedelta(minutes=61)
    assert (delivery["status"], delivery["status_code"]) == ("pending", 503)
    assert read_endpoint(client, endpoint)["failing_since"] is not None


def test_response_410_ends_the_webhook_endpoint_and_notifies_the_owner(
    stack: Stack, owner: Owner, client: httpx2.Client, receiver: HookReceiver
) -> None:
    receiver.answer = lambda _: (410, {})
    endpoint = new_endpoint(client, receiver.url)
    announce_events(stack, owner, count=3)
    eventually(lambda: read_endpoint(client, endpoint)["state"] == "ended", what="the end")
    assert len(receiver.hooks) == 1
    assert "410" in read_endpoint(client, endpoint)["reason"]
    path = f"{ENDPOINTS_PATH}/{endpoint['id']}"
    problem(client.patch(path, json={"state": "active"}), 409, "webhook.ended")
    problem(client.post(f"{path}/rotate"), 409, "webhook.ended")
    mails = eventually(lambda: _mails_about(stack, owner, "stopped"), what="the mail")
    assert f"endpoint {endpoint['id']} was permanently disabled" in mails[0]["text"]


@pytest.mark.tier("faults")
def test_response_410_of_a_replaced_url_does_not_end_the_webhook_endpoint(
    stack: Stack, owner: Owner, client: httpx2.Client, receiver: HookReceiver
) -> None:
    with running_receiver() as former_receiver, stack.client(owner.key) as second_client:
        endpoint = new_endpoint(client, former_receiver.url)
        path = f"{ENDPOINTS_PATH}/{endpoint['id']}"

        def replace_url(_: Hook) -> tuple[int, dict[str, str]]:
            data(second_client.patch(path, json={"url": receiver.url}))
            return 410, {}

        former_receiver.answer = replace_url
        announce_events(stack, owner)
        # The event that the receiver at the former URL rejected is sent again to the new URL.
        eventually(lambda: receiver.hooks, what="the event at the new URL", within=30)
        assert receiver.ids == former_receiver.ids
    assert read_endpoint(client, endpoint)["state"] == "active"


def test_webhook_endpoint_failing_for_three_days_is_paused_and_gets_missed_events_later(
    stack: Stack, owner: Owner, client: httpx2.Client, receiver: HookReceiver
) -> None:
    receiver.answer = lambda _: (500, {})
    endpoint = new_endpoint(client, receiver.url)
    announce_events(stack, owner)
    eventually(lambda: read_endpoint(client, endpoint)["failing_since"], what="the first failure")
    # The first attempt to send the event began as soon as the event was queued, so the endpoint's
    # ``failing_since`` equals the delivery's ``queued_at``. If the endpoint still fails three days
    # after ``failing_since``, Pressroom pauses the endpoint.
    compare_times = (
        "SELECT failing_since = queued_at FROM webhook_deliveries AS delivery"
        " JOIN webhook_endpoints AS endpoint ON endpoint.id = endpoint_id WHERE endpoint.id = %s"
    )
    assert stack.query(compare_times, endpoint["id"]) == [(True,)]
    stack.query(
        "UPDATE webhook_endpoints SET failing_since = now() - interval '3 days' WHERE id = %s",
        endpoint["id"],
    )
    end_retry_pauses(stack, endpoint["id"])
    eventually(lambda: read_endpoint(client, endpoint)["state"] == "paused", what="the pause")
    assert "three days" in read_endpoint(client, endpoint)["reason"]
    assert eventually(lambda: _mails_about(stack, owner, "stopped"), what="the mail")
    announce_events(stack, owner)
    missed_ids = event_ids(stack, owner)[-2:]
    receiver.hooks.clear()
    receiver.answer = lambda _: OK
    data(client.patch(f"{ENDPOINTS_PATH}/{endpoint['id']}", json={"state": "active"}))
    eventually(lambda: len(receiver.hooks) >= 2, what="what was missed")
    assert receiver.ids == missed_ids


def test_webhook_event_rejected_for_three_days_is_dropped_and_later_events_arrive(
    stack: Stack, owner: Owner, client: httpx2.Client, receiver: HookReceiver
) -> None:
    receiver.answer = lambda hook: (422, {}) if hook.id == receiver.ids[0] else OK
    endpoint = new_endpoint(client, receiver.url)
    announce_events(stack, owner)
    eventually(lambda: read_endpoint(client, endpoint)["failing_since"], what="the first failure")
    # After two hours without success, the failing event no longer delays the next event.
    _move_into_the_past(stack, endpoint, "2 hours")
    announce_events(stack, owner)
    eventually(
        lambda: list_deliveries(client, endpoint)[0]["status"] == "delivered", what="the next event"
    )
    assert read_endpoint(client, endpoint)["failing_since"] is None
    _move_into_the_past(stack, endpoint, "70 hours")
    end_retry_pauses(stack, endpoint["id"])
    eventually(lambda: list_deliveries(client, endpoint)[1]["status"] == "failed", what="the end")
    announce_events(stack, owner)
    eventually(
        lambda: (
            [each["status"] for each in list_deliveries(client, endpoint)]
            == ["delivered", "delivered", "failed"]
        ),
        what="the last event",
    )
    assert read_endpoint(client, endpoint)["state"] == "active"


def test_old_and_new_webhook_secrets_both_sign_until_the_old_one_expires(
    stack: Stack, client: httpx2.Client, receiver: HookReceiver
) -> None:
    endpoint = new_endpoint(client, receiver.url)
    path = f"{ENDPOINTS_PATH}/{endpoint['id']}"
    new_secret = data(client.post(f"{path}/rotate"))["secret"]
    data(client.post(f"{path}/test"))
    eventually(lambda: receiver.hooks, what="the test event")
    [hook] = receiver.hooks
    assert len(hook.headers["webhook-signature"].split(" ")) == 2
    hook.check(endpoint["secret"])
    hook.check(new_secret)
    # A test event has no event id, because Pressroom doesn't record test events in the event feed.
    assert (hook.content["type"], hook.content["data"]["id"]) == ("webhook.test", None)
    assert hook.id.startswith("test_")
    stack.query(
        "UPDATE webhook_secrets SET expires_at = now() WHERE expires_at IS NOT NULL"
        " AND endpoint_id = %s",
        endpoint["id"],
    )
    data(client.post(f"{path}/test"))
    eventually(lambda: len(receiver.hooks) == 2, what="another test event")
    receiver.hooks[1].check(new_secret)
    with pytest.raises(WebhookVerificationError):
        receiver.hooks[1].check(endpoint["secret"])


def test_webhook_endpoint_has_a_maximum_number_of_live_secrets(
    stack: Stack, client: httpx2.Client, receiver: HookReceiver
) -> None:
    endpoint = new_endpoint(client, receiver.url)
    path = f"{ENDPOINTS_PATH}/{endpoint['id']}"
    for _ in range(MAX_LIVE_SECRETS - 1):
        newest_secret = data(client.post(f"{path}/rotate"))["secret"]
    problem(client.post(f"{path}/rotate"), 409, "webhook.too_many_secrets")
    data(client.post(f"{path}/test"))
    eventually(lambda: receiver.hooks, what="the test event")
    for secret in (endpoint["secret"], newest_secret):
        receiver.hooks[0].check(secret)
    expire_oldest_secret = (
        "UPDATE webhook_secrets SET expires_at = now() WHERE endpoint_id = %s AND id = ("
    )
    expire_oldest_secret += "SELECT min(id) FROM webhook_secrets WHERE endpoint_id = %s)"
    stack.query(expire_oldest_secret, endpoint["id"], endpoint["id"])
    assert data(client.post(f"{path}/rotate"))["secret"]


def test_webhook_resend_and_replay_deliver_events_again_with_their_original_ids(
    stack: Stack, owner: Owner, client: httpx2.Client, receiver: HookReceiver
) -> None:
    announce_events(stack, owner)
    wait_until_event_is_visible(client)
    endpoint = new_endpoint(client, receiver.url)
    path = f"{ENDPOINTS_PATH}/{endpoint['id']}"
    announce_events(stack, owner, count=2)
    eventually(lambda: len(receiver.hooks) == 2, what="both events")
    eventually(lambda: are_delivered(client, endpoint, 2), what="both answers")
    first_delivery = list_deliveries(client, endpoint)[1]
    resent_delivery = data(client.post(f"{path}/deliveries/{first_delivery['id']}/resend"))
    assert resent_delivery["status"] == "pending"
    eventually(lambda: len(receiver.hooks) == 3, what="the event again")
    assert receiver.ids[2] == f"evt_{first_delivery['event_id']}"
    receiver.hooks.clear()
    hour_ago = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    assert data(client.post(f"{path}/replay", json={"since": hour_ago})) == 1
    # The replay includes events from before the endpoint was created.
    all_ids = event_ids(stack, owner)
    eventually(lambda: len(receiver.hooks) >= len(all_ids), what="all events")
    assert receiver.ids == all_ids
    in_an_hour = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    assert data(client.post(f"{path}/replay", json={"since": in_an_hour})) == 0


def test_webhook_tests_and_resends_are_limited_while_the_receiver_fails(
    stack: Stack, client: httpx2.Client, receiver: HookReceiver
) -> None:
    receiver.answer = lambda _: (503, {"Retry-After": "3600"})
    endpoint = new_endpoint(client, receiver.url)
    path = f"{ENDPOINTS_PATH}/{endpoint['id']}"
    first_delivery = data(client.post(f"{path}/test"))
    eventually(lambda: list_deliveries(client, endpoint)[0]["status_code"], what="the first answer")
    insert_deliveries = (
        "INSERT INTO webhook_deliveries (endpoint_id, event_type, due_at, status)"
        " SELECT %s, 'webhook.test', now() + interval '1 hour', %s FROM generate_series(1, %s)"
    )
    stack.query(insert_deliveries, endpoint["id"], "pending", MAX_PENDING_REQUESTED - 2)
    stack.query(insert_deliveries, endpoint["id"], "delivered", 1)
    finished_delivery = next(
        each for each in list_deliveries(client, endpoint) if each["status"] == "delivered"
    )
    data(client.post(f"{path}/test"))
    resend_path = f"{path}/deliveries/{finished_delivery['id']}/resend"
    for rejected_path in (f"{path}/test", resend_path):
        problem(client.post(rejected_path), 409, "webhook.too_many_pending")
    # The limit of pending deliveries doesn't prevent resending a delivery that is already pending.
    data(client.post(f"{path}/deliveries/{first_delivery['id']}/resend"))
    stack.query(
        "UPDATE webhook_deliveries SET status = 'failed' WHERE status = 'pending'"
        " AND endpoint_id = %s",
        endpoint["id"],
    )
    assert data(client.post(resend_path))["status"] == "pending"


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
    announce_events(stack, owner)
    select_held = "SELECT id FROM webhook_endpoints WHERE id = %s AND is_held"
    eventually(lambda: stack.query(select_held, endpoint["id"]), what="the full endpoint")
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
    announce_events(stack, owner, count=3)
    eventually(lambda: len(list_deliveries(client, endpoint)) == 3, what="all deliveries")
    paged_deliveries = walk_pages(client, f"{ENDPOINTS_PATH}/{endpoint['id']}/deliveries", limit=2)
    assert [each["id"] for each in paged_deliveries] == [
        each["id"] for each in list_deliveries(client, endpoint)
    ]


def test_deleted_webhook_endpoint_receives_no_more_events(
    stack: Stack, owner: Owner, client: httpx2.Client, receiver: HookReceiver
) -> None:
    deleted_endpoint = new_endpoint(client, receiver.url)
    active_endpoint = new_endpoint(client, receiver.url)
    data(client.delete(f"{ENDPOINTS_PATH}/{deleted_endpoint['id']}"))
    announce_events(stack, owner)
    eventually(lambda: receiver.hooks, what="the event")
    eventually(
        lambda: list_deliveries(client, active_endpoint)[0]["status"] == "delivered",
        what="the other's answer",
    )
    [hook] = receiver.hooks
    hook.check(active_endpoint["secret"])


def test_webhook_urls_never_appear_in_logs(
    stack: Stack, owner: Owner, client: httpx2.Client, receiver: HookReceiver
) -> None:
    endpoint = new_endpoint(client, f"{receiver.url}/T0KEN-of-the-receiver")
    announce_events(stack, owner)
    eventually(lambda: are_delivered(client, endpoint, 1), what="the answer")
    logs = [text.log.read_text(errors="replace") for text in stack.processes]
    assert any(logs)
    assert not any("T0KEN-of-the-receiver" in text for text in logs)


def _move_into_the_past(stack: Stack, endpoint: dict[str, Any], interval: str) -> None:
    """Move the queueing of the deliveries, and the endpoint's first failure, into the past.

    ``interval``: a Postgres interval, such as `2 hours`.
    """
    stack.query(
        "UPDATE webhook_endpoints SET due_at = now(),"
        " failing_since = failing_since - CAST(%s AS interval) WHERE id = %s;"
        "UPDATE webhook_deliveries SET queued_at = queued_at - CAST(%s AS interval)"
        " WHERE endpoint_id = %s",
        *(interval, endpoint["id"], interval, endpoint["id"]),
    )


def _mails_about(stack: Stack, owner: Owner, word: str) -> list[dict[str, Any]]:
    return [each for each in stack.mails(owner.email) if word in each["subject"]]
