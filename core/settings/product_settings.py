"""Each setting is an environment variable that begins with ``PRESSROOM_``, checked at start."""

import re
from decimal import Decimal
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.networks import IPvAnyNetwork
from pydantic_settings import NoDecode, SettingsConfigDict

from core.keyring import Keyring
from core.settings.currencies import DEFAULT_CURRENCIES, CreditsPerUsd, Currencies
from core.settings.notations import COMMA_SEPARATED, readable_by
from core.settings.origins import Origins
from core.settings.provider_settings import PREFIX, BaseUrl, ProviderSettings
from core.settings.rate_notation import RateLimits

_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+\Z")  # RFC 9110, 5.6.2

# For these settings an empty value means: no limit.
MAY_BE_EMPTY = ("rate_limit_default", "rate_limit_anonymous", "rate_limit_login")

# Stands for: no proxy is in front of the API.
_NO_PROXY = "none"

Keys = Annotated[SecretStr, readable_by(Keyring.parse)]


def _unless_none(value: object) -> object:
    return () if isinstance(value, str) and value.strip().lower() == _NO_PROXY else value


# The last validator in the list reads first.
TrustedProxies = Annotated[
    tuple[IPvAnyNetwork, ...] | None, NoDecode, COMMA_SEPARATED, BeforeValidator(_unless_none)
]


class SettingsError(Exception):
    """Raised for unusable settings; the message names each one, never its value."""


class Settings(ProviderSettings):
    model_config = SettingsConfigDict(
        env_prefix=PREFIX, extra="ignore", frozen=True, hide_input_in_errors=True
    )

    database_url: SecretStr
    """Postgres: postgresql://user:password@host:port/db"""

    migration_database_url: SecretStr | None = None
    """The same database as the owner of its tables, for pressroom migrate alone, which makes the
    role of the database URL and lets it read and write rows; without it one role does everything"""

    redis_url: SecretStr
    """Redis or Valkey, broker and cache: redis://user:password@host:port/0"""

    s3_endpoint: BaseUrl
    """S3-compatible storage, such as http://host:9000"""

    s3_access_key: str
    """Access key of the object storage"""

    s3_secret_key: SecretStr
    """Secret key of the object storage"""

    s3_bucket: str = "pressroom"
    """Bucket that holds every object"""

    s3_admin_access_key: str | None = None
    """Access key of an administrator of MinIO or Silo, for pressroom bucket alone, which makes the
    user of the access key and lets it use the bucket; without it the access key makes the bucket"""

    s3_admin_secret_key: SecretStr | None = None
    """Secret key of that administrator"""

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

    trusted_proxies: TrustedProxies = None
    """IP addresses or networks of proxies whose forwarded headers are trusted, comma separated, or
    the word none; the API needs it where the public URL is https"""

    credits_per_usd: CreditsPerUsd = Decimal(100)
    """How many credits a US dollar buys"""

    currencies: Currencies = Field(default=DEFAULT_CURRENCIES, validate_default=True)
    """Currencies in which credits are sold, comma separated, each code:units per USD:smallest
    order; the first is the default"""

    redirect_origins: Origins = ()
    """Origins to which payers may be sent back, such as https://www.example.com, comma separated;
    the word loopback stands for every port of the same machine"""

    rate_limit_default: RateLimits = "30000/minute"
    """How often each credential may call, such as 600/minute; empty: no limit"""

    rate_limit_anonymous: RateLimits = "1200/minute"
    """How often each IP address may call without credentials; empty: no limit"""

    rate_limit_login: RateLimits = "60/minute"
    """How often each IP address may log in, register, ask for a new password or order without
    credentials; empty: no limit"""

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

    @field_validator("database_url", "migration_database_url")
    @classmethod
    def _postgres_only(cls, value: SecretStr | None) -> SecretStr | None:
        if value is None:
            return None
        scheme, separator, rest = value.get_secret_value().partition("://")
        if not separator or scheme not in {"postgresql", "postgres", "postgresql+psycopg2"}:
            raise ValueError("must begin with postgresql://")
        return SecretStr(f"postgresql+psycopg2://{rest}")

    @field_validator("s3_admin_secret_key")
    @classmethod
    def _with_its_key(cls, value: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        if (value is None) != (info.data.get("s3_admin_access_key") is None):
            raise ValueError(f"goes together with {PREFIX}S3_ADMIN_ACCESS_KEY: set both, or none")
        return value

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

    def forwarding_networks(self) -> tuple[str, ...]:
        """The proxies' networks; raises ``SettingsError`` where nobody said whether there is one.

        TLS ends in a proxy. If the API did not know it, all callers would have its address, and one
        of them could use up what an address may do.
        """
        if self.trusted_proxies is None and self.public_url.scheme == "https":
            raise SettingsError(
                f"{PREFIX}TRUSTED_PROXIES: is needed where the public URL is https: the addresses "
                f"of the proxies in front of the API, or {_NO_PROXY}"
            )
        return tuple(map(str, self.trusted_proxies or ()))

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
