"""Each setting is an environment variable that begins with ``PRESSROOM_``, checked at start."""

import re
from decimal import Decimal
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic.networks import IPvAnyNetwork
from pydantic_settings import NoDecode, SettingsConfigDict

from core.keyring import Keyring
from core.settings.currencies import DEFAULT_CURRENCIES, CreditsPerUsd, Currencies
from core.settings.notations import COMMA_SEPARATED, readable_by
from core.settings.origins import Origins
from core.settings.plan_quotas import DEFAULT_QUOTA_FREE, DEFAULT_QUOTA_PAID, Quotas
from core.settings.provider_settings import PREFIX, BaseUrl, ProviderSettings
from core.settings.rate_notation import RateLimits

_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+\Z")  # RFC 9110, 5.6.2

# For these settings an empty value means: no limit.
MAY_BE_EMPTY = (
    "rate_limit_default",
    "rate_limit_anonymous",
    "rate_limit_login",
    "quota_free",
    "quota_paid",
)

Keys = Annotated[SecretStr, readable_by(Keyring.parse)]


class SettingsError(Exception):
    """Raised for unusable settings; the message names each one, never its value."""


class Settings(ProviderSettings):
    model_config = SettingsConfigDict(
        env_prefix=PREFIX, extra="ignore", frozen=True, hide_input_in_errors=True
    )

    database_url: SecretStr
    """Postgres: postgresql://user:password@host:port/db"""

    redis_url: SecretStr
    """Redis or Valkey, broker and cache: redis://:password@host:port/0"""

    s3_endpoint: BaseUrl
    """S3-compatible storage, such as http://host:9000"""

    s3_access_key: str
    """Access key of the object storage"""

    s3_secret_key: SecretStr
    """Secret key of the object storage"""

    s3_bucket: str = "pressroom"
    """Bucket that holds every object"""

    public_url: BaseUrl
    """URL of the API for its callers, without a final slash"""

    media_base_url: BaseUrl | None = None
    """URL of a CDN in front of /media, for unencrypted media only; without it media are under the
    public URL"""

    secret_keys: Keys
    """Signing keys, each id:base64url of 32 bytes, comma separated; the first one signs, all of
    them verify"""

    encryption_keys: Keys
    """Keys that encrypt attachments, written like the secret keys; losing a key loses every file
    that it encrypted"""

    api_key_header: str = "X-API-Key"
    """Header that may carry an API key"""

    trusted_proxies: Annotated[tuple[IPvAnyNetwork, ...], NoDecode, COMMA_SEPARATED] = ()
    """IP addresses or networks of proxies whose forwarded headers are trusted, comma separated"""

    credits_per_usd: CreditsPerUsd = Decimal(100)
    """How many credits a US dollar buys"""

    currencies: Currencies = Field(default=DEFAULT_CURRENCIES, validate_default=True)
    """Currencies in which credits are sold, comma separated, each code:units per USD:smallest
    order; the first is the default"""

    redirect_origins: Origins = ()
    """Origins to which payers may be sent back, such as https://www.example.com, comma separated;
    the word loopback stands for every port of the same machine"""

    rate_limit_default: RateLimits = "30000/minute"
    """How often each user may call, such as 600/minute; empty: no limit"""

    rate_limit_anonymous: RateLimits = "1200/minute"
    """How often each IP address may call without credentials; empty: no limit"""

    rate_limit_login: RateLimits = "60/minute"
    """How often each IP address may log in, register, ask for a new password or order without
    credentials; empty: no limit"""

    quota_free: Quotas = Field(default=DEFAULT_QUOTA_FREE, validate_default=True)
    """What an owner on the free plan may have, each as quota=number, comma separated; what is not
    named has no limit"""

    quota_paid: Quotas = Field(default=DEFAULT_QUOTA_PAID, validate_default=True)
    """What an owner on the paid plan may have, written like that of the free plan"""

    metrics_token: SecretStr | None = None
    """Bearer token for /metrics; without it /metrics is closed"""

    flower_user: str = "operator"
    """User name that Flower asks for"""

    flower_password: SecretStr | None = None
    """Password that Flower asks for; without it Flower doesn't start"""

    ready_file: Path | None = None
    """File that a worker touches once it takes jobs"""

    alive_file: Path | None = None
    """File that a worker touches each second while its loop turns and its broker answers"""

    worker_grace: float = Field(default=10.0, ge=0)
    """Seconds that a stopping worker gives its running jobs"""

    patience: float = Field(default=86_400.0, ge=0)
    """Seconds for which a job is tried while a server that it needs fails; a day by default"""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severe level that is logged"""

    log_format: Literal["auto", "json", "pretty"] = "auto"
    """Log format; auto is pretty on a terminal, JSON elsewhere"""

    @model_validator(mode="before")
    @classmethod
    def _empty_is_unset(cls, values: dict[str, Any]) -> dict[str, Any]:
        # So an empty line in an environment file leaves a setting as it is by default.
        return {
            name: value for name, value in values.items() if value != "" or name in MAY_BE_EMPTY
        }

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

    @field_validator("api_key_header")
    @classmethod
    def _header_name(cls, value: str) -> str:
        if not _TOKEN.match(value) or value.lower() == "authorization":
            raise ValueError("must be the name of a header, and not Authorization")
        return value

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
    """Read the environment, once; raises ``SettingsError``, which names every wrong setting."""
    try:
        return Settings()
    except ValidationError as error:
        lines = [
            f"{PREFIX}{str(problem['loc'][0]).upper()}: {problem['msg']}"
            for problem in error.errors(include_input=False, include_url=False)
        ]
        raise SettingsError("\n".join(lines)) from None
