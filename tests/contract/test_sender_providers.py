"""Tests of reports from each provider, which the sandbox posts as signed requests."""

import httpx2
import pytest

from devstack.harness.polling import eventually
from devstack.harness.stack import Stack
from devstack.sandbox.senders.mail_events import ProviderName
from tests.support.http.replies import data
from tests.support.imports.bulk import add
from tests.support.lists.subscribers import new_address, require_member
from tests.support.senders.posting import delivery_for, reports_of, settle
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
    for proof in ("missing", "invalid"):
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
