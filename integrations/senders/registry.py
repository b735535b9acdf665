"""Chooses the adapter of a sender's provider."""

from collections.abc import Mapping

from integrations.senders import sendgrid, standard_webhooks
from integrations.senders.brevo import BrevoAdapter
from integrations.senders.generic import GenericAdapter
from integrations.senders.mailgun import MailgunAdapter
from integrations.senders.port import SenderAdapter, SenderProvider
from integrations.senders.postmark import PostmarkAdapter
from integrations.senders.resend import ResendAdapter

_ADAPTERS: Mapping[SenderProvider, SenderAdapter] = {
    adapter.provider: adapter
    for adapter in (
        GenericAdapter(),
        PostmarkAdapter(),
        MailgunAdapter(),
        sendgrid.SendGridAdapter(),
        BrevoAdapter(),
        ResendAdapter(),
    )
}


def get_adapter(provider: SenderProvider) -> SenderAdapter:
    return _ADAPTERS[provider]


def list_providers() -> list[SenderProvider]:
    """Return the providers that have an adapter."""
    return list(_ADAPTERS)


def find_key_problem(provider: SenderProvider, key: str) -> str | None:
    """Return the rule that an invalid key breaks, or ``None`` if the key is valid."""
    if provider is SenderProvider.RESEND:
        is_valid = standard_webhooks.is_signing_secret(key)
        return None if is_valid else "must begin with whsec_, and continue with base64"
    if provider is SenderProvider.SENDGRID:
        is_valid = sendgrid.is_public_key(key)
        return None if is_valid else "must be an ECDSA public key in base64 or PEM"
    return None if key else "must not be empty"
