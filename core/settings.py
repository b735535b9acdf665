"""Every setting: an environment variable that begins with ``PRESSROOM_``, checked at start."""

import os
import re
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    AnyHttpUrl,
    Field,
    PlainSerializer,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic.networks import IPvAnyNetwork
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from core.currencies import DEFAULT_CURRENCIES, Currencies, Rate
from core.keyring import Keyring
from core.mail import MailServer, Sender
from core.origins import Origins
from core.rates import RateLimits

PREFIX = "PRESSROOM_"
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+\Z")  # RFC 9110, 5.6.2
_HOSTNAME = re.compile(r"[a-z0-9._-]+\Z")
_THIS_MACHINE = frozenset({"127.0.0.1", "[::1]", "localhost"})
# It is a part of the header Pressroom-Source, where a semicolon ends it.
_MODEL = re.compile(r"[!-:<-~]{1,100}\Z")
_KEYED_HOST = "api.openai.com"

# Those for which an empty value is an answer: none.
MAY_BE_EMPTY = ("rate_limit_default", "rate_limit_anonymous", "rate_limit_login")

BaseUrl = Annotated[AnyHttpUrl, PlainSerializer(str)]


class SettingsError(Exception):
    """Settings that can't be used; its text names each one, never its value."""


class Settings(BaseSettings):
    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        # An empty line in an environment file means: not set.
        env_ignore_empty=True,
        extra="ignore",
        frozen=True,
        hide_input_in_errors=True,
    )

    database_url: SecretStr = Field(description="Postgres: postgresql://user:password@host:port/db")
    redis_url: SecretStr = Field(
        description="Redis or Valkey, broker and cache: redis://:password@host:port/0"
    )
    s3_endpoint: BaseUrl = Field(description="S3-compatible storage, such as http://host:9000")
    s3_access_key: str = Field(description="Access key of the object storage")
    s3_secret_key: SecretStr = Field(description="Secret key of the object storage")
    s3_bucket: str = Field(default="pressroom", description="Bucket that holds every object")
    public_url: BaseUrl = Field(description="Where callers reach the API, without a final slash")
    media_base_url: BaseUrl | None = Field(
        default=None,
        description="A CDN in front of /media, for unencrypted media only; without one they are "
        "under the public URL",
    )
    secret_keys: SecretStr = Field(
        description="Keys that sign, each id:base64url of 32 bytes, comma separated; the first one "
        "makes, all of them check"
    )
    encryption_keys: SecretStr = Field(
        description="Keys that encrypt attachments, written like the secret keys; "
        "losing one loses what it encrypted"
    )
    api_key_header: str = Field(default="X-API-Key", description="Header that may carry an API key")
    trusted_proxies: Annotated[tuple[IPvAnyNetwork, ...], NoDecode] = Field(
        default=(),
        description="Addresses or networks whose forwarded headers count, comma separated",
    )
    mail_url: SecretStr | None = Field(
        default=None,
        description="Who takes our mail: smtp://, smtps:// (TLS) or smtp+starttls://, then "
        "user:password@host:port; without one mail is kept until there is one",
    )
    mail_from: str = Field(
        default="Pressroom <pressroom@localhost>",
        description="Whom our mail is from: an address, or Name <address>",
    )
    turnstile_url: BaseUrl = Field(
        default=AnyHttpUrl("https://challenges.cloudflare.com/turnstile/v0/siteverify"),
        description="Where tokens of Turnstile are checked",
    )
    turnstile_secret: SecretStr | None = Field(
        default=None, description="Secret of Turnstile; with its site key it switches Turnstile on"
    )
    turnstile_site_key: str | None = Field(
        default=None,
        validate_default=True,
        description="Public key with which pages show the widget of Turnstile",
    )
    hcaptcha_url: BaseUrl = Field(
        default=AnyHttpUrl("https://api.hcaptcha.com/siteverify"),
        description="Where tokens of hCaptcha are checked",
    )
    hcaptcha_secret: SecretStr | None = Field(
        default=None, description="Secret of hCaptcha; with its site key it switches hCaptcha on"
    )
    hcaptcha_site_key: str | None = Field(
        default=None,
        validate_default=True,
        description="Public key with which pages show the widget of hCaptcha",
    )
    recaptcha_url: BaseUrl = Field(
        default=AnyHttpUrl("https://www.google.com/recaptcha/api/siteverify"),
        description="Where tokens of reCAPTCHA are checked",
    )
    recaptcha_secret: SecretStr | None = Field(
        default=None, description="Secret of reCAPTCHA; with its site key it switches reCAPTCHA on"
    )
    recaptcha_site_key: str | None = Field(
        default=None,
        validate_default=True,
        description="Public key with which pages show the widget of reCAPTCHA",
    )
    challenge_hostnames: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="Host names of the pages whose challenges count, comma separated; "
        "empty is any that the provider accepts",
    )
    credits_per_usd: Rate = Field(
        default=Decimal(100), description="How many credits a US dollar buys"
    )
    currencies: Currencies = Field(
        default=DEFAULT_CURRENCIES,
        validate_default=True,
        description="Currencies that credits are sold in, comma separated, each "
        "code:units per USD:smallest order; the first is that of who names none",
    )
    redirect_origins: Origins = Field(
        default=(),
        description="Origins that payers may be sent back to, such as https://www.example.com, "
        "comma separated; the word loopback stands for every port of the same machine",
    )
    stripe_base_url: BaseUrl = Field(
        default=AnyHttpUrl("https://api.stripe.com"), description="Where Stripe's API is"
    )
    stripe_secret_key: SecretStr | None = Field(
        default=None,
        description="Secret or restricted key of Stripe; with its webhook secret it switches "
        "payments through Stripe on",
    )
    stripe_webhook_secret: SecretStr | None = Field(
        default=None,
        validate_default=True,
        description="Signing secret of the webhook endpoint /webhooks/stripe in Stripe",
    )
    payments_sandbox_url: BaseUrl | None = Field(
        default=None,
        description="Payments that move no money: where the development stack's stand-in for "
        "Stripe is, on this machine",
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
        description="Who writes for the composer: offline needs no network, openai is any server "
        "of that protocol",
    )
    llm_base_url: BaseUrl = Field(
        default=AnyHttpUrl("https://api.openai.com/v1"),
        description="Where the language model's protocol is spoken, up to /chat/completions",
    )
    llm_api_key: SecretStr | None = Field(
        default=None,
        validate_default=True,
        description="Key of the language model's server; a server of your own may need none",
    )
    llm_model: str | None = Field(
        default=None,
        validate_default=True,
        description="Name of the language model, as its server knows it; openai needs one",
    )
    llm_context_tokens: int = Field(
        default=32_000,
        ge=4_000,
        le=2_000_000,
        description="How many tokens the language model takes, question and answer together",
    )
    llm_fallback: Literal["offline", "error"] = Field(
        default="offline",
        description="What happens when the language model fails: offline writes without it, "
        "error tells the caller",
    )
    stock_photo_provider: Literal["unsplash", "openverse"] = Field(
        default="openverse",
        description="Whose stock photos /composer/stockphoto are: unsplash or openverse",
    )
    unsplash_base_url: BaseUrl = Field(
        default=AnyHttpUrl("https://api.unsplash.com"),
        description="Where the API of Unsplash is; no request for it goes anywhere else",
    )
    unsplash_access_key: SecretStr | None = Field(
        default=None, description="Access key of Unsplash; without one Unsplash is off"
    )
    openverse_base_url: BaseUrl = Field(
        default=AnyHttpUrl("https://api.openverse.org"),
        description="Where the API of Openverse is; no request for it goes anywhere else",
    )
    rate_limit_default: RateLimits = Field(
        default="30000/minute",
        description="How often each credential may call, such as 600/minute; empty is off",
    )
    rate_limit_anonymous: RateLimits = Field(
        default="1200/minute",
        description="How often each address may call without credentials; empty is off",
    )
    rate_limit_login: RateLimits = Field(
        default="60/minute",
        description="How often each address may log in, register, ask for a new password and "
        "order without credentials; empty is off",
    )
    metrics_token: SecretStr | None = Field(
        default=None, description="Bearer token that opens /metrics; without one it is closed"
    )
    flower_user: str = Field(default="operator", description="User name that Flower asks for")
    flower_password: SecretStr | None = Field(
        default=None, description="Password that Flower asks for; without one it does not start"
    )
    ready_file: Path | None = Field(
        default=None, description="A file that a worker touches once it takes jobs"
    )
    worker_grace: float = Field(
        default=10.0, ge=0, description="Seconds that jobs under way have left once a worker stops"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least severe level that is logged"
    )
    log_format: Literal["auto", "json", "pretty"] = Field(
        default="auto", description="auto is pretty on a terminal, JSON elsewhere"
    )

    @field_validator("database_url")
    @classmethod
    def _postgres_only(cls, value: SecretStr) -> SecretStr:
        scheme, separator, rest = value.get_secret_value().partition("://")
        if not separator or scheme not in {"postgresql", "postgres", "postgresql+psycopg2"}:
            raise ValueError("must begin with postgresql://")
        return SecretStr(f"postgresql+psycopg2://{rest}")

    @field_validator("redis_url")
    @classmethod
    def _redis_only(cls, value: SecretStr) -> SecretStr:
        if not value.get_secret_value().startswith(("redis://", "rediss://")):
            raise ValueError("must begin with redis:// or rediss://")
        return value

    @field_validator("secret_keys", "encryption_keys")
    @classmethod
    def _readable_keys(cls, value: SecretStr) -> SecretStr:
        Keyring.parse(value.get_secret_value())
        return value

    @field_validator("mail_url")
    @classmethod
    def _mail_server(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None:
            MailServer.parse(value.get_secret_value())
        return value

    @field_validator("mail_from")
    @classmethod
    def _one_sender(cls, value: str) -> str:
        Sender.parse(value)
        return value

    @field_validator("api_key_header")
    @classmethod
    def _header_name(cls, value: str) -> str:
        if not _TOKEN.match(value) or value.lower() == "authorization":
            raise ValueError("must be the name of a header, and not Authorization")
        return value

    @field_validator("trusted_proxies", "challenge_hostnames", mode="before")
    @classmethod
    def _comma_separated(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
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
        # Whoever may pay there is given credits for nothing.
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

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        emptied = [name for name in MAY_BE_EMPTY if os.environ.get(PREFIX + name.upper()) == ""]
        return (
            init_settings,
            env_settings,
            InitSettingsSource(settings_cls, dict.fromkeys(emptied, "")),
        )

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
        is_asked = info.data.get("llm_provider") == "openai"
        if is_asked and not key and url is not None and url.host == _KEYED_HOST:
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

    @property
    def public_base(self) -> str:
        return str(self.public_url).rstrip("/")

    @property
    def media_base(self) -> str:
        return str(self.media_base_url or self.public_url).rstrip("/")

    @property
    def keyring(self) -> Keyring:
        return Keyring.parse(self.secret_keys.get_secret_value())

    @property
    def encryption_keyring(self) -> Keyring:
        return Keyring.parse(self.encryption_keys.get_secret_value())


@lru_cache(maxsize=1)
def load_settings() -> Settings:
    """Read the environment once; raises ``SettingsError`` naming every setting that is wrong."""
    try:
        return Settings()
    except ValidationError as error:
        lines = [
            f"{PREFIX}{str(problem['loc'][0]).upper()}: {problem['msg']}"
            for problem in error.errors(include_input=False, include_url=False)
        ]
        raise SettingsError("\n".join(lines)) from None
