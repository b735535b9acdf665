"""Tests of reports from each provider, which the sandbox posts as signed requests."""

import hmac
import json
import secrets
import time
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest

from devstack.harness.polling import eventually
from devstack.harness.stack import Stack
from devstack.sandbox.senders.mail_events import ProviderName
from tests.support.http.replies import data, problem
from tests.support.imports.bulk import add
from tests.support.lists.subscribers import new_address, require_member
from tests.support.people.consoles import OwnerAtConsole, read_page
from tests.support.senders.own_senders import new_sender
from tests.support.senders.posting import (
    delivery_for,
    outcomes,
    post_body,
    reports_of,
    settle,
)
from tests.support.senders.provider_posts import new_provider_sender, post_events

# Maps each event that the sandbox posts to the kind and the outcome of the report in Pressroom.
REPORTS_BY_EVENT = {
    "delivered": ("delivered", "applied"),
    "soft_bounce": ("bounced", "applied"),
    "blocked": ("bounced", "applied"),
    "opened": ("opened", "off"),
    "hard_bounce": ("bounced", "applied"),
    "complained": ("complained", "applied"),
    "unsubscribed": ("unsubscribed", "applied"),
}


@pytest.mark.parametrize("provider", ProviderName)
def test_reports_of_each_provider_are_applied(
    stack: Stack, client: httpx2.Client, list_id: int, provider: ProviderName
) -> None:
    sender = new_provider_sender(stack, client, provider)
    emails = {kind: new_address() for kind in REPORTS_BY_EVENT}
    data(add(client, list_id, *emails.values()))
    events = [
        {
            "kind": kind,
            "email": email,
            "delivery_id": delivery_for(
                stack, list_id, require_member(client, list_id, email)["user_id"]
            ),
        }
        for kind, email in emails.items()
    ]
    for proof in ("missing", "invalid", "altered", "old"):
        assert set(post_events(stack, sender, events, proof=proof)) == {401}
    for _ in range(2):
        assert set(post_events(stack, sender, events)) == {200}
    settle(stack, sender)
    kinds_and_outcomes = [(each["kind"], each["outcome"]) for each in reports_of(client, sender)]
    assert kinds_and_outcomes[: len(REPORTS_BY_EVENT)] == list(REPORTS_BY_EVENT.values())
    # The second request repeats the events of the first request, so its reports change nothing.
    assert {outcome for _, outcome in kinds_and_outcomes[len(REPORTS_BY_EVENT) :]} <= {
        "duplicate",
        "off",
        "stale",
    }
    # After processing the reports, a worker ends the subscriptions of members who opted out.
    eventually(
        lambda: (
            {
                kind
                for kind, email in emails.items()
                if require_member(client, list_id, email)["status"] != "active"
            }
            == {"complained", "unsubscribed"}
        ),
        what="the opt-outs",
    )
    members = {kind: require_member(client, list_id, email) for kind, email in emails.items()}
    kinds_without_mail = {kind for kind, member in members.items() if not member["email_enabled"]}
    assert members["hard_bounce"]["email_off"]["reason"] == "bounced"
    assert kinds_without_mail - {"complained", "unsubscribed"} == {"hard_bounce"}


@pytest.mark.parametrize("provider", ProviderName)
def test_compressed_reports_of_each_provider_are_applied(
    stack: Stack, client: httpx2.Client, list_id: int, provider: ProviderName
) -> None:
    sender = new_provider_sender(stack, client, provider)
    email = new_address()
    data(add(client, list_id, email))
    event = {"kind": "complained", "email": email}
    for proof in ("missing", "invalid", "altered", "old"):
        statuses = post_events(stack, sender, [event], proof=proof, is_compressed=True)
        assert statuses == [401]
    assert post_events(stack, sender, [event], is_compressed=True) == [200]
    settle(stack, sender)
    [record] = reports_of(client, sender)
    assert (record["kind"], record["outcome"]) == ("complained", "applied")


SIGNING_KEY = "mailgun-signing-key"


def build_mailgun_body(event: dict[str, str], token: str, *, age_seconds: int = 0) -> bytes:
    timestamp = str(int(time.time()) - age_seconds)
    digest = hmac.digest(SIGNING_KEY.encode(), f"{timestamp}{token}".encode(), "sha256").hex()
    signature = {"timestamp": timestamp, "token": token, "signature": digest}
    return json.dumps({"signature": signature, "event-data": event}).encode()


def replace_event(body: bytes, event: dict[str, str]) -> bytes:
    """Return Mailgun's body with another event, but with the same signature."""
    return json.dumps({**json.loads(body), "event-data": event}).encode()


def test_signature_of_mailgun_serves_for_only_one_event(
    stack: Stack, client: httpx2.Client, list_id: int
) -> None:
    sender = new_sender(client, provider="mailgun", signing_key=SIGNING_KEY)
    same_key_sender = new_sender(client, provider="mailgun", signing_key=SIGNING_KEY)
    emails = [new_address(), new_address()]
    data(add(client, list_id, *emails))
    delivered = {"id": "event-1", "event": "delivered", "recipient": emails[0]}
    forged_events = [
        {"id": "event-2", "event": "complained", "recipient": emails[1]},
        {"id": "event-1", "event": "complained", "recipient": emails[1]},
        {"id": "event-1", "event": "complained", "recipient": emails[0]},
        {"event": "delivered", "recipient": emails[0]},
    ]
    body = build_mailgun_body(delivered, "t0ken", age_seconds=23 * 3600)
    # Mailgun repeats a request if it gets no answer.
    for _ in range(2):
        assert data(post_body(client, sender["id"], body, {})) == 1
    for event in forged_events:
        for each in (sender, same_key_sender):
            reply = post_body(client, each["id"], replace_event(body, event), {})
            problem(reply, 401, "sender.signature_invalid")
    assert data(post_body(client, sender["id"], body, {})) == 1
    fresh_body = build_mailgun_body(forged_events[0], "another token")
    assert data(post_body(client, sender["id"], fresh_body, {})) == 1
    settle(stack, sender)
    assert outcomes(client, sender) == ["applied", "duplicate", "duplicate", "applied"]
    statuses = [require_member(client, list_id, email)["status"] for email in emails]
    assert statuses[0] == "active"
    eventually(
        lambda: data(client.get(f"/senders/{sender['id']}"))["refused_24h"] == len(forged_events),
        what="the rejected calls counted",
    )


def test_owner_replaces_the_key_of_a_provider_on_the_page_of_the_sender(
    console: OwnerAtConsole,
) -> None:
    sender = new_sender(console.api, provider="mailgun", signing_key="lost key")
    path = f"/console/developers/senders/{sender['id']}"
    assert f'{path}/rotate">Replace key</a>' in console.see(path)
    event = {"id": "event-1", "event": "delivered", "recipient": new_address()}
    body = build_mailgun_body(event, secrets.token_hex(25))
    problem(post_body(console.api, sender["id"], body, {}), 401, "sender.signature_invalid")
    refused_page = read_page(console.send(f"{path}/rotate", signing_key=" "), 422)
    assert "Enter the HTTP webhook signing key." in refused_page
    text = console.do(f"{path}/rotate", signing_key=SIGNING_KEY)
    assert "The key was replaced. The former key is valid for 24 hours." in text
    assert data(post_body(console.api, sender["id"], body, {})) == 1


def test_owner_replaces_the_topic_of_amazon_ses_on_the_page_of_the_sender(
    stack: Stack, console: OwnerAtConsole
) -> None:
    topic = "arn:aws:sns:eu-west-1:123456789012:mail-events"
    sender = new_sender(console.api, provider="ses", topic_arn=topic)
    path = f"/console/developers/senders/{sender['id']}"
    refused_page = read_page(console.send(f"{path}/rotate", topic_arn="no topic"), 422)
    assert "Must be the ARN of a standard topic of Amazon SNS." in refused_page
    assert "The topic was replaced." in console.do(f"{path}/rotate", topic_arn=f"{topic}-2")
    query = "SELECT topic_arn FROM senders WHERE id = %s"
    assert stack.query(query, sender["id"]) == [(f"{topic}-2",)]


def test_one_of_several_simultaneous_events_with_the_same_signature_of_mailgun_is_accepted(
    client: httpx2.Client,
) -> None:
    sender = new_sender(client, provider="mailgun", signing_key=SIGNING_KEY)
    body = build_mailgun_body({}, "t0ken")
    bodies = [
        replace_event(body, {"id": f"event-{n}", "event": "delivered", "recipient": new_address()})
        for n in range(8)
    ]
    with ThreadPoolExecutor(len(bodies)) as pool:
        replies = [*pool.map(lambda each: post_body(client, sender["id"], each, {}), bodies)]
    assert sorted(reply.status_code for reply in replies) == [200, *[401] * 7]


def test_token_of_mailgun_is_stored_only_as_hash_until_its_signature_expires(
    stack: Stack, client: httpx2.Client
) -> None:
    sender = new_sender(client, provider="mailgun", signing_key=SIGNING_KEY)
    token = secrets.token_hex(25)
    body = build_mailgun_body(
        {"id": token, "event": "delivered", "recipient": "a@b.example"}, token
    )
    count = "SELECT count(*) FROM spent_proofs WHERE event_hash IS NOT NULL"
    [(before,)] = stack.query(count)
    assert data(post_body(client, sender["id"], body, {})) == 1
    assert stack.query(count) == [(int(str(before)) + 1,)]
    [(hours,)] = stack.query(
        "SELECT max(extract(epoch FROM expires_at - now()) / 3600)::float FROM spent_proofs"
        " WHERE event_hash IS NOT NULL"
    )
    assert 23.9 < float(str(hours)) <= 24
    rows = stack.query("SELECT p::text FROM spent_proofs AS p")
    assert not any(token.encode().hex() in str(row) or token in str(row) for row in rows)
