"""Checks the keys and topics of mail providers that owners enter for their senders."""

from collections.abc import Mapping

from core.errors.senders import SENDER_KEY_INVALID, SENDER_TOPIC_INVALID
from integrations.senders import registry
from integrations.senders.port import SenderProvider
from integrations.senders.sns_topics import parse_topic

MAX_KEY_CHARACTERS = 2_000
MAX_TOPIC_CHARACTERS = 512
# Maps each provider that creates its own signing key to the API field in which the owner sends the
# key to Pressroom.
KEY_NAMES: Mapping[SenderProvider, str] = {
    SenderProvider.MAILGUN: "signing_key",
    SenderProvider.SENDGRID: "public_key",
    SenderProvider.RESEND: "signing_secret",
}
# The providers for which Pressroom creates the secret. The owner copies the secret to the provider.
CREATED_SECRETS = frozenset({SenderProvider.GENERIC, SenderProvider.POSTMARK, SenderProvider.BREVO})


def choose_key(provider: SenderProvider, keys: Mapping[str, str]) -> str | None:
    """``keys`` maps API fields such as ``signing_key`` to the keys that the owner sent."""
    name = KEY_NAMES.get(provider)
    for unused in keys.keys() - {name}:
        raise SENDER_KEY_INVALID(name=unused, rule=f"isn't used by the provider {provider}")
    if name is None or name not in keys:
        return None
    key = keys[name].strip()
    if (rule := registry.find_key_problem(provider, key)) is not None:
        raise SENDER_KEY_INVALID(name=name, rule=rule)
    return key


def require_topic(provider: SenderProvider, topic_arn: str | None) -> None:
    """Require a topic of Amazon SNS for ``ses``, and none for other providers."""
    if provider is not SenderProvider.SES:
        if topic_arn is not None:
            raise SENDER_TOPIC_INVALID(rule=f"isn't used by the provider {provider}")
    elif topic_arn is None or parse_topic(topic_arn) is None:
        raise SENDER_TOPIC_INVALID(rule="must be the ARN of a standard topic of Amazon SNS")
