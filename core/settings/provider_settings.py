"""The settings of providers for mail, challenges, payments, language models and stock photos."""

import re
from typing import Annotated, Literal

from pydantic import AnyHttpUrl, Field, SecretStr, ValidationInfo, field_validator
from pydantic_settings import NoDecode

from core.errors import SettingsError
from core.settings.given_settings import PREFIX, GivenSettings, required_together, variable_of
from core.settings.mail_server import MailSender, MailServer, require_address
from core.settings.notations import COMMA_SEPARATED, parsable_by
from core.settings.store_settings import BaseUrl

_HOSTNAME = re.compile(r"[a-z0-9._-]+\Z")
_LOCAL_HOSTS = frozenset({"127.0.0.1", "[::1]", "localhost"})
# A model's name must not contain a semicolon, because it becomes part of the header
# Pressroom-Source.
_MODEL_NAME = re.compile(r"[!-:<-~]{1,100}\Z")
# The only known host whose language models always require an API key.
_HOST_WITH_API_KEY = "api.openai.com"


class ProviderSettings(GivenSettings):
    mail_url: Annotated[SecretStr | None, parsable_by(MailServer.parse)] = None
    """URL of the mail server: smtp://, smtps:// (TLS) or smtp+starttls://, followed by
    user:password@host:port. Without this setting, mail waits and isn't sent."""

    mail_from: Annotated[str, parsable_by(MailSender.parse)] = "Pressroom <pressroom@localhost>"
    """Sender of all mail, as an address or Name <address>"""

    operator_mail: Annotated[str | None, parsable_by(require_address)] = None
    """E-mail address of the operator, who gets a mail when checks of `pressroom doctor` fail or
    pass again. Without this setting, maintenance runs no checks."""

    turnstile_url: BaseUrl = AnyHttpUrl("https://challenges.cloudflare.com/turnstile/v0/siteverify")
    """URL for verifying Turnstile tokens"""

    turnstile_secret: SecretStr | None = None
    """Secret of Turnstile; set it together with the site key to enable Turnstile"""

    turnstile_site_key: Annotated[str | None, required_together("turnstile_secret")] = None
    """Site key of Turnstile, which web pages contain"""

    hcaptcha_url: BaseUrl = AnyHttpUrl("https://api.hcaptcha.com/siteverify")
    """URL for verifying hCaptcha tokens"""

    hcaptcha_secret: SecretStr | None = None
    """Secret of hCaptcha; set it together with the site key to enable hCaptcha"""

    hcaptcha_site_key: Annotated[str | None, required_together("hcaptcha_secret")] = None
    """Site key of hCaptcha, which web pages contain"""

    recaptcha_url: BaseUrl = AnyHttpUrl("https://www.google.com/recaptcha/api/siteverify")
    """URL for verifying reCAPTCHA tokens"""

    recaptcha_secret: SecretStr | None = None
    """Secret of reCAPTCHA; set it together with the site key to enable reCAPTCHA"""

    recaptcha_site_key: Annotated[str | None, required_together("recaptcha_secret")] = None
    """Site key of reCAPTCHA, which web pages contain"""

    challenge_hostnames: Annotated[tuple[str, ...], NoDecode, COMMA_SEPARATED] = ()
    """Comma-separated host names of web pages whose challenges are accepted, in addition to the
    public URL's host"""

    account_challenge: Literal["turnstile", "hcaptcha", "recaptcha", "none"] | None = None
    """Challenge provider for registrations and password resets, or none for no challenge. The
    default is the first configured provider."""

    stripe_base_url: BaseUrl = AnyHttpUrl("https://api.stripe.com")
    """URL of Stripe's API"""

    stripe_secret_key: SecretStr | None = None
    """Secret or restricted key of Stripe. Set it together with the webhook secret to enable
    payments through Stripe."""

    stripe_webhook_secret: Annotated[SecretStr | None, required_together("stripe_secret_key")] = (
        None
    )
    """Signing secret of Stripe's webhook endpoint for /webhooks/stripe"""

    payments_sandbox_url: BaseUrl | None = None
    """URL of the development stack's payment sandbox on this machine, which moves no money"""

    payments_sandbox_secret_key: SecretStr | None = None
    """Secret key of the payment sandbox"""

    payments_sandbox_webhook_secret: Annotated[
        SecretStr | None, required_together("payments_sandbox_url", "payments_sandbox_secret_key")
    ] = None
    """Webhook secret of the payment sandbox"""

    llm_provider: Literal["offline", "openai"] = "offline"
    """Writer of the composer's texts. The value offline needs no network, and openai uses any
    server with OpenAI's protocol."""

    llm_base_url: BaseUrl = AnyHttpUrl("https://api.openai.com/v1")
    """URL of the language model's API, without /chat/completions"""

    llm_api_key: SecretStr | None = None
    """API key of the language model's server; your own server may not need one"""

    llm_model: str | None = None
    """Name of the language model; required with the provider openai"""

    llm_context_tokens: int = Field(default=32_000, ge=4_000, le=2_000_000)
    """Maximum number of tokens in a prompt and its response together"""

    llm_fallback: Literal["offline", "error"] = "offline"
    """Behaviour of the composer if the language model fails. The value offline writes texts without
    the model, and error returns an error."""

    stock_photo_provider: Literal["unsplash", "openverse"] = "openverse"
    """Provider of stock photos: unsplash or openverse"""

    unsplash_base_url: BaseUrl = AnyHttpUrl("https://api.unsplash.com")
    """URL of Unsplash's API; no other host receives requests to Unsplash"""

    unsplash_access_key: SecretStr | None = None
    """Access key of Unsplash; without this setting, Unsplash is disabled"""

    openverse_base_url: BaseUrl = AnyHttpUrl("https://api.openverse.org")
    """URL of Openverse's API; no other host receives requests to Openverse"""

    sns_base_url: BaseUrl | None = None
    """URL of a server on this machine that replaces Amazon SNS in the development stack. If set,
    Pressroom downloads SNS certificates and confirms SNS subscriptions only at this URL. The server
    also serves the trusted root certificates at /roots.pem, and each issuer's certificate at the
    path of its URL in the issued certificate"""

    @field_validator("challenge_hostnames")
    @classmethod
    def _hostnames(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        names = tuple(name.lower() for name in value)
        if not all(map(_HOSTNAME.match, names)):
            raise ValueError("must be host names without scheme, port and path")
        return names

    @field_validator("account_challenge")
    @classmethod
    def _challenge_is_set_up(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value not in (None, "none") and not info.data.get(f"{value}_site_key"):
            raise ValueError(f"requires the secret and the site key of {value}")
        return value

    @field_validator("payments_sandbox_url", "sns_base_url")
    @classmethod
    def _on_this_machine(cls, value: AnyHttpUrl | None) -> AnyHttpUrl | None:
        # The simulations of Stripe and Amazon SNS must run on the same machine as Pressroom. Anyone
        # who can reach the simulation of Stripe gets credits without paying. Anyone who controls
        # the simulation of Amazon SNS can forge reports about mails.
        if value is not None and value.host not in _LOCAL_HOSTS:
            raise ValueError("must have the host 127.0.0.1, [::1] or localhost")
        return value

    @field_validator("llm_base_url")
    @classmethod
    def _bare_url(cls, value: AnyHttpUrl) -> AnyHttpUrl:
        if value.username or value.password or value.query or value.fragment:
            raise ValueError("must not contain a user, password, query or fragment")
        return value

    @field_validator("llm_api_key")
    @classmethod
    def _printable_key(cls, value: SecretStr | None) -> SecretStr | None:
        if value and not all("!" <= each <= "~" for each in value.get_secret_value()):
            raise ValueError("must be printable ASCII without spaces")
        return value

    @field_validator("llm_model")
    @classmethod
    def _named_model(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None and info.data.get("llm_provider") == "openai":
            raise ValueError(f"is required with {PREFIX}LLM_PROVIDER=openai")
        if value is not None and not _MODEL_NAME.match(value):
            raise ValueError(
                "must be at most 100 printable ASCII characters, without spaces and semicolons"
            )
        return value

    def require_model_key(self) -> None:
        """Raise ``SettingsError`` if the language model needs an API key that is missing."""
        needs_key = self.llm_provider == "openai" and self.llm_base_url.host == _HOST_WITH_API_KEY
        if needs_key and not self.llm_api_key:
            raise SettingsError(
                f"{variable_of('llm_api_key')}: is required for {_HOST_WITH_API_KEY}"
            )
