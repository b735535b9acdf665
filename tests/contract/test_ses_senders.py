"""Tests of senders for Amazon SES: signed SNS messages, and subscriptions to SNS topics."""

from typing import Any

import httpx2
import pytest

from devstack import LOOPBACK
from devstack.harness.polling import eventually
from devstack.harness.stack import Stack
from tests.support.http.replies import data, problem
from tests.support.imports.bulk import add
from tests.support.lists.subscribers import new_address, require_member
from tests.support.senders.own_senders import new_sender
from tests.support.senders.posting import delivery_for, outcomes, settle
from tests.support.senders.provider_posts import (
    confirmed_topics,
    new_topic,
    post_events,
    post_topic_change,
)

SUBSCRIBE_MESSAGE = "SubscriptionConfirmation"
UNSUBSCRIBE_MESSAGE = "UnsubscribeConfirmation"


@pytest.fixture
def ses_sender(client: httpx2.Client) -> dict[str, Any]:
    """A sender for Amazon SES with an SNS topic that no other test uses."""
    topic_arn = new_topic()
    return {**new_sender(client, provider="ses", topic_arn=topic_arn), "topic_arn": topic_arn}


def read_state(client: httpx2.Client, sender: dict[str, Any]) -> tuple[str, list[str]]:
    record = data(client.get(f"/senders/{sender['id']}"))
    return record["state"], record["warnings"]


def read_failures(stack: Stack, sender: dict[str, Any]) -> list[tuple[object, ...]]:
    query = "SELECT failures, due_at > now() FROM sender_bodies WHERE sender_id = %s"
    return stack.query(query, sender["id"])


def retry_now(stack: Stack, sender: dict[str, Any]) -> None:
    stack.query("UPDATE sender_bodies SET due_at = now() WHERE sender_id = %s", sender["id"])


def test_sender_of_ses_requires_the_arn_of_a_standard_topic(client: httpx2.Client) -> None:
    for topic_arn in (None, "", "letters", f"{new_topic()}.fifo", "arn:aws:sns:s3:123456789012:x"):
        body = {"name": "x", "provider": "ses", "topic_arn": topic_arn}
        problem(client.post("/senders", json=body), 422, "sender.topic_invalid")
    sender = new_sender(client, provider="ses", topic_arn=new_topic())
    assert (sender["secret"], sender["username"]) == (None, None)
    path = f"/senders/{sender['id']}"
    problem(client.patch(path, json={"topic_arn": "letters"}), 422, "sender.topic_invalid")
    assert data(client.patch(path, json={"topic_arn": new_topic()}))["id"] == sender["id"]


@pytest.mark.parametrize(("version", "warnings"), [("1", ["sns_signature_v1"]), ("2", [])])
def test_subscribed_topic_reports_a_bounce(
    stack: Stack,
    client: httpx2.Client,
    ses_sender: dict[str, Any],
    list_id: int,
    *,
    version: str,
    warnings: list[str],
) -> None:
    options = {"signature_version": version}
    assert post_topic_change(stack, ses_sender, SUBSCRIBE_MESSAGE, **options) == [200]
    settle(stack, ses_sender)
    assert ses_sender["topic_arn"] in confirmed_topics(stack)
    assert read_state(client, ses_sender) == ("waiting", warnings)
    email = new_address()
    data(add(client, list_id, email))
    delivery_id = delivery_for(stack, list_id, require_member(client, list_id, email)["user_id"])
    event = {"kind": "hard_bounce", "email": email, "delivery_id": delivery_id}
    assert post_events(stack, ses_sender, [event], **options) == [200]
    settle(stack, ses_sender)
    assert outcomes(client, ses_sender) == ["applied"]
    member = require_member(client, list_id, email)
    assert (member["email_enabled"], member["email_off"]["reason"]) == (False, "bounced")
    assert read_state(client, ses_sender) == ("working", warnings)


@pytest.mark.parametrize("proof", ["missing", "invalid", "altered"])
def test_message_without_a_valid_proof_or_of_another_topic_is_rejected(
    stack: Stack, ses_sender: dict[str, Any], proof: str
) -> None:
    event = {"kind": "hard_bounce"}
    assert post_events(stack, ses_sender, [event], proof=proof) == [401]
    # A message of another SNS topic is rejected, although the message's signature is valid.
    assert post_events(stack, ses_sender, [event], topic_arn=new_topic()) == [401]
    assert post_topic_change(stack, ses_sender, SUBSCRIBE_MESSAGE, topic_arn=new_topic()) == [401]
    assert read_failures(stack, ses_sender) == []


def test_message_is_repeated_by_sns_while_its_certificate_is_unreachable(
    stack: Stack, client: httpx2.Client, ses_sender: dict[str, Any]
) -> None:
    with stack.run_second_api(PRESSROOM_SNS_BASE_URL=f"http://{LOOPBACK}:9") as api:
        url = f"{api.api_url}/senders/{ses_sender['id']}/events"
        assert post_events(stack, ses_sender, [{"kind": "delivered"}], url=url) == [503]
    assert data(client.get(f"/senders/{ses_sender['id']}"))["refused_24h"] == 0


def test_subscription_is_confirmed_when_sns_is_reachable_again(
    stack: Stack, client: httpx2.Client, ses_sender: dict[str, Any]
) -> None:
    assert post_topic_change(stack, ses_sender, SUBSCRIBE_MESSAGE, outages=2) == [200]
    for attempt in (1, 2):
        eventually(
            lambda: read_failures(stack, ses_sender) == [(attempt, True)],  # noqa: B023 - at once
            what="the failed attempt",
        )
        assert ses_sender["topic_arn"] not in confirmed_topics(stack)
        # Pressroom processes reports even before the subscription to the SNS topic is confirmed.
        assert post_events(stack, ses_sender, [{"kind": "accepted"}]) == [200]
        eventually(
            lambda: outcomes(client, ses_sender) == ["ignored"] * attempt,  # noqa: B023 - at once
            what="the report",
        )
        stack.query(
            "UPDATE sender_bodies SET due_at = now() WHERE sender_id = %s", ses_sender["id"]
        )
    settle(stack, ses_sender)
    assert confirmed_topics(stack).count(ses_sender["topic_arn"]) == 1


def test_refused_confirmation_is_shown_as_an_invalid_report(
    stack: Stack, client: httpx2.Client, ses_sender: dict[str, Any]
) -> None:
    # After the worker's first attempt to confirm the subscription to the sender's SNS topic, and
    # before the second attempt, change the sender's SNS topic.
    assert post_topic_change(stack, ses_sender, SUBSCRIBE_MESSAGE, outages=1) == [200]
    eventually(lambda: read_failures(stack, ses_sender) == [(1, True)], what="the failed attempt")
    data(client.patch(f"/senders/{ses_sender['id']}", json={"topic_arn": new_topic()}))
    retry_now(stack, ses_sender)
    settle(stack, ses_sender)
    items = data(client.get(f"/senders/{ses_sender['id']}/reports"))["items"]
    assert [(each["outcome"], each["code"]) for each in items] == [("invalid", SUBSCRIBE_MESSAGE)]
    assert read_state(client, ses_sender)[0] == "waiting"
    assert ses_sender["topic_arn"] not in confirmed_topics(stack)


def test_sender_fails_after_its_topic_is_unsubscribed_until_it_is_subscribed_again(
    stack: Stack, client: httpx2.Client, ses_sender: dict[str, Any]
) -> None:
    assert post_topic_change(stack, ses_sender, UNSUBSCRIBE_MESSAGE) == [200]
    settle(stack, ses_sender)
    assert read_state(client, ses_sender) == ("failing", ["topic_unsubscribed"])
    # The message about the end of the subscription to the SNS topic contains a token. Pressroom
    # doesn't send the token to SNS, because SNS would then renew the subscription.
    assert ses_sender["topic_arn"] not in confirmed_topics(stack)
    # SNS may still deliver messages that were published before the subscription ended.
    assert post_events(stack, ses_sender, [{"kind": "accepted"}]) == [200]
    settle(stack, ses_sender)
    assert outcomes(client, ses_sender) == ["ignored"]
    assert read_state(client, ses_sender) == ("failing", ["topic_unsubscribed"])
    assert post_topic_change(stack, ses_sender, SUBSCRIBE_MESSAGE) == [200]
    settle(stack, ses_sender)
    assert read_state(client, ses_sender) == ("working", [])
