"""Creates the adapters of all mail providers that can send reports."""

from collections.abc import Mapping

from integrations.senders import sendgrid, standard_webhooks
from integrations.senders.brevo import BrevoAdapter
from integrations.senders.generic import GenericAdapter
from integrations.senders.mailgun import MailgunAdapter
from integrations.senders.port import SenderAdapter, SenderProvider
from integrations.senders.postmark import PostmarkAdapter
from integrations.senders.resend import ResendAdapter


def create_adapters(sns_base_url: str | None) -> Mapping[SenderProvider, SenderAdapter]:
    # Import this module only in this function, because the module imports an HTTP library that most
    # commands don't need.
    from integrations.senders.ses import SesAdapter

    adapters: tuple[SenderAdapter, ...] = (
        GenericAdapter(),
        SesAdapter(sns_base_url),
        PostmarkAdapter(),
        MailgunAdapter(),
        sendgrid.SendGridAdapter(),
        BrevoAdapter(),
        ResendAdapter(),
    )
    return {adapter.provider: adapter for adapter in adapters}


def find_key_problem(provider: SenderProvider, key: str) -> str | None:
    if provider is SenderProvider.RESEND:
        is_valid = standard_webhooks.is_signing_secret(key)
        return None if is_valid else "must begin with whsec_, and continue with base64"
    if provider is SenderProvider.SENDGRID:
        is_valid = sendgrid.is_public_key(key)
        return None if is_valid else "must be an ECDSA public key in base64 or PEM"
    return None if key else "must not be empty"
