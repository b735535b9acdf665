"""Settings of providers: mail, challenges, payments, language models, stock photos."""

import re
from typing import Annotated, Literal

from pydantic import (
    AnyHttpUrl,
    BeforeValidator,
    Field,
    PlainSerializer,
    SecretStr,
    ValidationInfo,
    field_validator,
)
from pydantic_settings import BaseSettings, NoDecode

from core.settings.mail_server import MailSender, MailServer

PREFIX = "PRESSROOM_"
_HOSTNAME = re.compile(r"[a-z0-9._-]+\Z")
_THIS_MACHINE = frozenset({"127.0.0.1", "[::1]", "localhost"})
# The model's name goes into the header Pressroom-Source, where a semicolon would end it.
_MODEL = re.compile(r"[!-:<-~]{1,100}\Z")
_KEYED_HOST = "api.openai.com"

BaseUrl = Annotated[AnyHttpUrl, PlainSerializer(str)]


def comma_separated(value: object) -> object:
    """Split a text at its commas, without the spaces around the parts; leave other values."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


class ProviderSettings(BaseSettings):
    """The providers' part of ``core.settings.Settings``, which says how all of it is read."""

    mail_url: SecretStr | None = Field(
        default=None,
        description="Server that sends our mail: smtp://, smtps:// (TLS) or smtp+starttls://, then "
        "user:password@host:port; without it mail waits until there is one",
    )
    mail_from: str = Field(
        default="Pressroom <pressroom@localhost>",
        description="Sender of our mail: an address, or Name <address>",
    )
    turnstile_url: BaseUrl = Field(
        default=AnyHttpUrl("https://challenges.cloudflare.com/turnstile/v0/siteverify"),
        description="URL that checks the tokens of Turnstile",
    )
    turnstile_secret: SecretStr | None = Field(
        default=None, description="Secret of Turnstile; with its site key it turns Turnstile on"
    )
    turnstile_site_key: str | None = Field(
        default=None,
        validate_default=True,
        description="Public key with which pages show the widget of Turnstile",
    )
    hcaptcha_url: BaseUrl = Field(
        default=AnyHttpUrl("https://api.hcaptcha.com/siteverify"),
        description="URL that checks the tokens of hCaptcha",
    )
    hcaptcha_secret: SecretStr | None = Field(
        default=None, description="Secret of hCaptcha; with its site key it turns hCaptcha on"
    )
    hcaptcha_site_key: str | None = Field(
        default=None,
        validate_default=True,
        description="Public key with which pages show the widget of hCaptcha",
    )
    recaptcha_url: BaseUrl = Field(
        default=AnyHttpUrl("https://www.google.com/recaptcha/api/siteverify"),
        description="URL that checks the tokens of reCAPTCHA",
    )
    recaptcha_secret: SecretStr | None = Field(
        default=None, description="Secret of reCAPTCHA; with its site key it turns reCAPTCHA on"
    )
    recaptcha_site_key: str | None = Field(
        default=None,
        validate_default=True,
        description="Public key with which pages show the widget of reCAPTCHA",
    )
    challenge_hostnames: Annotated[tuple[str, ...], NoDecode, BeforeValidator(comma_separated)] = (
        Field(
            default=(),
            description="Host names of the pages whose challenges are accepted, comma separated; "
            "empty: every host name that the provider accepts",
        )
    )
    stripe_base_url: BaseUrl = Field(
        default=AnyHttpUrl("https://api.stripe.com"), description="URL of Stripe's API"
    )
    stripe_secret_key: SecretStr | None = Field(
        default=None,
        description="Secret or restricted key of Stripe; with the webhook secret it turns on "
        "payments through Stripe",
    )
    stripe_webhook_secret: SecretStr | None = Field(
        default=None,
        validate_default=True,
        description="Signing secret of the webhook endpoint /webhooks/stripe in Stripe",
    )
    payments_sandbox_url: BaseUrl | None = Field(
        default=None,
        description="URL of the development stack's stand-in for Stripe, on this machine; its "
        "payments move no money",
    )
    payments_sandbox_secret_key: SecretStr | None = Field(
        default=None, description="Secret key that the stand-in for Stripe was started with"
    )
    payments_sandbox_webhook_secret: SecretStr | None = Field(
        default=None,
        validate_default=True,
        description="Webhook secret that the stand-in for Stripe was started with",
    )
    llm_provider: Literal["offline", "openai"] = Field(
        default="offline",
        description="What writes for the composer: offline needs no network, openai is any server "
        "that speaks OpenAI's protocol",
    )
    llm_base_url: BaseUrl = Field(
        default=AnyHttpUrl("https://api.openai.com/v1"),
        description="URL of the language model's API, without /chat/completions",
    )
    llm_api_key: SecretStr | None = Field(
        default=None,
        validate_default=True,
        description="API key for the language model's server; your own server may need none",
    )
    llm_model: str | None = Field(
        default=None,
        validate_default=True,
        description="The server's name for the language model; openai needs one",
    )
    llm_context_tokens: int = Field(
        default=32_000,
        ge=4_000,
        le=2_000_000,
        description="Tokens that the language model can hold, question and answer together",
    )
    llm_fallback: Literal["offline", "error"] = Field(
        default="offline",
        description="What the composer does when the language model fails: offline writes without "
        "it, error tells the caller",
    )
    stock_photo_provider: Literal["unsplash", "openverse"] = Field(
        default="openverse",
        description="Provider of the photos of /composer/stockphoto: unsplash or openverse",
    )
    unsplash_base_url: BaseUrl = Field(
        default=AnyHttpUrl("https://api.unsplash.com"),
        description="URL of Unsplash's API; requests to Unsplash go to no other host",
    )
    unsplash_access_key: SecretStr | None = Field(
        default=None, description="Access key of Unsplash; without one Unsplash is off"
    )
    openverse_base_url: BaseUrl = Field(
        default=AnyHttpUrl("https://api.openverse.org"),
        description="URL of Openverse's API; requests to Openverse go to no other host",
    )

    @field_validator("mail_url")
    @classmethod
    def _mail_server(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None:
            MailServer.parse(value.get_secret_value())
        return value

    @field_validator("mail_from")
    @classmethod
    def _one_sender(cls, value: str) -> str:
        MailSender.parse(value)
        return value

    @field_validator("challenge_hostnames")
    @classmethod
    def _hostnames(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        names = tuple(name.lower() for name in value)
        if not all(map(_HOSTNAME.match, names)):
            raise ValueError("must be host names, without scheme, port and path")
        return names

    @field_validator("turnstile_site_key", "hcaptcha_site_key", "recaptcha_site_key")
    @classmethod
    def _with_secret(cls, value: str | None, info: ValidationInfo) -> str | None:
        secret = (info.field_name or "").replace("site_key", "secret")
        if bool(value) != bool(info.data.get(secret)):
            raise ValueError(f"goes together with {PREFIX}{secret.upper()}: set both, or none")
        return value

    @field_validator("stripe_webhook_secret")
    @classmethod
    def _with_key(cls, value: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        if bool(value) != bool(info.data.get("stripe_secret_key")):
            raise ValueError(f"goes together with {PREFIX}STRIPE_SECRET_KEY: set both, or none")
        return value

    @field_validator("payments_sandbox_url")
    @classmethod
    def _on_this_machine(cls, value: AnyHttpUrl | None) -> AnyHttpUrl | None:
        # A caller who can reach the stand-in gets credits without paying.
        if value is not None and value.host not in _THIS_MACHINE:
            raise ValueError("must be on this machine: 127.0.0.1, [::1] or localhost")
        return value

    @field_validator("payments_sandbox_webhook_secret")
    @classmethod
    def _whole_sandbox(cls, value: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        others = ("payments_sandbox_url", "payments_sandbox_secret_key")
        if len({bool(value), *(bool(info.data.get(name)) for name in others)}) > 1:
            named = " and ".join(PREFIX + name.upper() for name in others)
            raise ValueError(f"goes together with {named}: set all three, or none")
        return value

    @field_validator("llm_base_url")
    @classmethod
    def _bare_url(cls, value: AnyHttpUrl) -> AnyHttpUrl:
        if value.username or value.password or value.query or value.fragment:
            raise ValueError("must be without user, password, query and fragment")
        return value

    @field_validator("llm_api_key")
    @classmethod
    def _key_of_a_model(cls, value: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        key = value.get_secret_value() if value else ""
        if not all("!" <= each <= "~" for each in key):
            raise ValueError("must be printable ASCII without spaces")
        url = info.data.get("llm_base_url")
        is_used = info.data.get("llm_provider") == "openai"
        if is_used and not key and url is not None and url.host == _KEYED_HOST:
            raise ValueError(f"is needed for {_KEYED_HOST}")
        return value

    @field_validator("llm_model")
    @classmethod
    def _named_model(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None and info.data.get("llm_provider") == "openai":
            raise ValueError(f"is needed with {PREFIX}LLM_PROVIDER=openai")
        if value is not None and not _MODEL.match(value):
            raise ValueError("must be at most 100 printable ASCII characters, without space and ;")
        return value
