"""Every setting: an environment variable that begins with ``PRESSROOM_``, checked at start."""

import os
import re
from decimal import Decimal
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    Field,
    SecretStr,
    ValidationError,
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

from core.currencies import DEFAULT_CURRENCIES, CreditsPerUsd, Currencies
from core.keyring import Keyring
from core.origins import Origins
from core.provider_settings import PREFIX, BaseUrl, ProviderSettings, comma_separated
from core.rate_notation import RateLimits

_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+\Z")  # RFC 9110, 5.6.2

# Those for which an empty value is an answer: none.
MAY_BE_EMPTY = ("rate_limit_default", "rate_limit_anonymous", "rate_limit_login")


class SettingsError(Exception):
    """Settings that can't be used; its text names each one, never its value."""


class Settings(ProviderSettings):
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
    credits_per_usd: CreditsPerUsd = Field(
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

    @field_validator("api_key_header")
    @classmethod
    def _header_name(cls, value: str) -> str:
        if not _TOKEN.match(value) or value.lower() == "authorization":
            raise ValueError("must be the name of a header, and not Authorization")
        return value

    @field_validator("trusted_proxies", mode="before")
    @classmethod
    def _networks_apart(cls, value: object) -> object:
        return comma_separated(value)

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

    @property
    def public_base(self) -> str:
        return str(self.public_url).rstrip("/")

    @property
    def media_base(self) -> str:
        return str(self.media_base_url or self.public_url).rstrip("/")

    @cached_property
    def keyring(self) -> Keyring:
        return Keyring.parse(self.secret_keys.get_secret_value())

    @cached_property
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
