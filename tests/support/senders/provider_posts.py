"""Makes the sandbox post reports to Pressroom, in the format of each mail provider."""

import secrets
from collections.abc import Sequence
from typing import Any

import httpx2

from devstack.harness.stack import Stack, plain_client
from devstack.sandbox.senders.amazon_sns import REGION
from tests.support.senders.own_senders import new_sender

Event = dict[str, Any]
# Maps each provider to the API field with the provider's key or topic.
_KEY_FIELDS = {
    "mailgun": "signing_key",
    "sendgrid": "public_key",
    "resend": "signing_secret",
    "ses": "topic_arn",
}


def new_topic() -> str:
    return f"arn:aws:sns:{REGION}:123456789012:letters-{secrets.token_hex(6)}"


def new_provider_sender(
    stack: Stack, client: httpx2.Client, provider: str, **fields: object
) -> dict[str, Any]:
    """Create a sender with the key or topic that the sandbox uses for the provider."""
    if (field := _KEY_FIELDS.get(provider)) is not None:
        fields = {field: _read(stack, "keys")[provider], **fields}
    return new_sender(client, provider=provider, **fields)


def post_events(
    stack: Stack, sender: dict[str, Any], events: Sequence[Event], **options: object
) -> list[int]:
    """Make the sandbox post events, and return the statuses of Pressroom's responses.

    ``options``: fields of the sandbox's ``EventPosting``, such as ``topic_arn`` and ``proof``.
    """
    path = f"{sender['provider']}/events"
    return _post(stack, path, sender, {"events": list(events), **options})


def post_topic_change(
    stack: Stack, sender: dict[str, Any], message_type: str, **options: object
) -> list[int]:
    """Make the sandbox post a message of Amazon SNS about a subscription to a topic."""
    return _post(stack, "ses/topic-changes", sender, {"type": message_type, **options})


def confirmed_topics(stack: Stack) -> list[str]:
    return list(_read(stack, "sns/confirmed"))


def _read(stack: Stack, path: str) -> Any:
    with plain_client() as sandbox_client:
        return sandbox_client.get(f"{stack.sandbox_url}/senders/{path}").raise_for_status().json()


def _post(stack: Stack, path: str, sender: dict[str, Any], content: dict[str, Any]) -> list[int]:
    content = {
        "url": f"{stack.api_url}/senders/{sender['id']}/events",
        "secret": sender["secret"],
        **({"topic_arn": sender["topic_arn"]} if "topic_arn" in sender else {}),
        **content,
    }
    with plain_client() as sandbox_client:
        reply = sandbox_client.post(f"{stack.sandbox_url}/senders/{path}", json=content)
    reply.raise_for_status()
    return list(reply.json()["statuses"])
