"""Checks the keys and SNS topics that owners copy from their mail providers."""

import re
from collections.abc import Mapping

from core.errors.senders import SENDER_KEY_INVALID, SENDER_TOPIC_INVALID
from integrations.senders import registry
from integrations.senders.port import SenderProvider

MAX_KEY_CHARACTERS = 2_000
MAX_TOPIC_CHARACTERS = 512
# For each provider whose key the owner copies, the API field that contains the key.
KEY_NAMES: Mapping[SenderProvider, str] = {
    SenderProvider.MAILGUN: "signing_key",
    SenderProvider.SENDGRID: "public_key",
    SenderProvider.RESEND: "signing_secret",
}
# The providers whose secrets Pressroom creates.
CREATED_SECRETS = frozenset({SenderProvider.GENERIC, SenderProvider.POSTMARK, SenderProvider.BREVO})
_TOPIC_ARN = re.compile(
    r"arn:aws(-cn)?:sns:[a-z]{2}(-[a-z]+)+-[0-9]+:[0-9]{12}:[A-Za-z0-9_-]{1,256}"
)


def choose_key(provider: SenderProvider, keys: Mapping[str, str]) -> str | None:
    """Return the key that the provider uses, or ``None`` if ``keys`` is empty.

    ``keys``: maps the fields in ``KEY_NAMES`` to the values that the owner sent. Raises
    ``sender.key_invalid`` for an invalid key, and for a key that the provider doesn't use.
    """
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
    """Raise ``sender.topic_invalid`` for an invalid topic, or for a topic that isn't used.

    The provider ``ses`` requires a topic. All other providers must not have a topic.
    """
    if provider is not SenderProvider.SES:
        if topic_arn is not None:
            raise SENDER_TOPIC_INVALID(rule=f"isn't used by the provider {provider}")
    elif topic_arn is None or _TOPIC_ARN.fullmatch(topic_arn) is None:
        raise SENDER_TOPIC_INVALID(rule="must be the ARN of a topic of Amazon SNS")
