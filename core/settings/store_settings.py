"""The settings for databases, object storage, backups and Redis.

Each store has a separate settings class, because few processes need all stores.
"""

from dataclasses import dataclass, field
from typing import Annotated, Literal, Self
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic import (
    AfterValidator,
    AnyHttpUrl,
    Field,
    PlainSerializer,
    SecretStr,
    ValidationInfo,
    field_validator,
)
from pydantic_core import PydanticCustomError

from core.keyring import Keyring
from core.settings.given_settings import GivenSettings, required_together, variable_of
from core.settings.notations import BUCKET_NAME, matching, parsable_by, require_bucket_name

MIN_OPERATOR_SECRET_CHARACTERS = 20
SSE_S3 = "sse-s3"
_TLS_SCHEME = "sentinel+tls"
SENTINEL_SCHEMES = ("sentinel", _TLS_SCHEME)
_REDIS_URLS = tuple(f"{scheme}://" for scheme in ("redis", "rediss", *SENTINEL_SCHEMES))
_DEFAULT_SENTINEL_PORT = 26379

_SENTINEL_URL_RULE = (
    "must have the form sentinel://user:password@host:port/number?master_name=name, or "
    "sentinel+tls:// for TLS; append each additional Sentinel as ;sentinel://host:port"
)


@dataclass(frozen=True)
class Sentinels:
    """Redis Sentinels, which report the current master and promote a replica if the master fails.

    Attributes:
        is_encrypted: whether all connections use TLS, including connections to the Sentinels.
        ca_file: ``None`` means the certificate authorities of the operating system.
    """

    hosts: tuple[tuple[str, int], ...]
    master_name: str
    database: int
    user: str | None
    password: str | None = field(repr=False)
    sentinel_user: str | None
    sentinel_password: str | None = field(repr=False)
    is_encrypted: bool
    ca_file: str | None

    @classmethod
    def parse(cls, url: str) -> Self:
        """Parse ``sentinel://user:password@host:port/0?master_name=name;sentinel://host:port``.
        Error messages never quote the URLs, which contain a password.
        """
        try:
            return cls._parse(url)
        except (ValueError, KeyError):
            # Discard the error of ``urlsplit``, because the error's message could quote a password.
            raise ValueError(_SENTINEL_URL_RULE) from None

    @classmethod
    def _parse(cls, url: str) -> Self:
        urls = [urlsplit(part) for part in url.split(";")]
        first, *others = urls
        if first.scheme not in SENTINEL_SCHEMES or first.fragment:
            raise ValueError
        if not all(each.hostname and each.scheme == first.scheme for each in urls):
            raise ValueError
        if any(each.path.strip("/") or each.query for each in others):
            raise ValueError
        options = dict(parse_qsl(first.query, strict_parsing=True))
        sentinels = cls(
            hosts=tuple(
                (each.hostname or "", each.port or _DEFAULT_SENTINEL_PORT) for each in urls
            ),
            master_name=options.pop("master_name"),
            database=int(first.path.strip("/") or 0),
            user=first.username and unquote(first.username),
            password=first.password and unquote(first.password),
            sentinel_user=options.pop("sentinel_user", None),
            sentinel_password=options.pop("sentinel_password", None),
            is_encrypted=first.scheme == _TLS_SCHEME,
            ca_file=options.pop("ssl_ca_certs", None),
        )
        if options:
            raise ValueError
        return sentinels


BaseUrl = Annotated[AnyHttpUrl, PlainSerializer(str)]
Region = Annotated[
    str,
    matching(
        "[A-Za-z0-9_-]{1,63}", "must have at most 63 letters, digits, hyphens and underscores"
    ),
]
Encryption = Annotated[
    str,
    matching(
        rf"{SSE_S3}|sse-kms:[!-~]{{1,2048}}", f"must be {SSE_S3} or have the form sse-kms:KEY"
    ),
]


def _read_postgres_url(value: SecretStr | None) -> SecretStr | None:
    if value is None:
        return None
    scheme, separator, rest = value.get_secret_value().partition("://")
    if not separator or scheme not in {"postgresql", "postgres", "postgresql+psycopg2"}:
        raise ValueError("must start with postgresql://")
    return SecretStr(f"postgresql+psycopg2://{rest}")


POSTGRES = AfterValidator(_read_postgres_url)


def _check_redis(url: str) -> None:
    if not url.startswith(_REDIS_URLS):
        raise ValueError(f"must start with one of {', '.join(_REDIS_URLS)}")
    if url.partition("://")[0] in SENTINEL_SCHEMES:
        Sentinels.parse(url)


RedisUrl = Annotated[SecretStr | None, parsable_by(_check_redis)]


def _require_long_secret(value: SecretStr | None) -> SecretStr | None:
    """Require a long secret, because no rate limit slows down attackers who guess the secret."""
    if value is not None and len(value.get_secret_value()) < MIN_OPERATOR_SECRET_CHARACTERS:
        raise ValueError(f"must have at least {MIN_OPERATOR_SECRET_CHARACTERS} characters")
    return value


OperatorSecret = Annotated[SecretStr | None, AfterValidator(_require_long_secret)]


class DatabaseSettings(GivenSettings):
    database_url: Annotated[SecretStr, POSTGRES]
    """URL of the Postgres database: postgresql://user:password@host:port/db"""


class LogSettings(GivenSettings):
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest severity of log messages that are written"""

    log_format: Literal["auto", "json", "pretty"] = "auto"
    """Log format: json, pretty, or auto for pretty on a terminal and json elsewhere"""


class MigrationSettings(DatabaseSettings, LogSettings):
    migration_database_url: Annotated[SecretStr | None, POSTGRES] = None
    """URL of the same database with the role that owns the tables. Only pressroom migrate uses it,
    to create the application's role and grant it access to rows. Without this setting, one role
    does everything."""


class ObjectStorageSettings(GivenSettings):
    s3_endpoint: BaseUrl
    """URL of the S3-compatible object storage, such as http://host:9000"""

    s3_region: Region | None = None
    """Region of the bucket. Without this setting, AWS reports the region, and other servers use
    us-east-1."""

    s3_addressing: Literal["auto", "path", "virtual"] = "auto"
    """Form of bucket URLs: path for host/bucket, or virtual for bucket.host. The value auto means
    virtual at AWS and Alibaba Cloud, and path elsewhere."""

    s3_access_key: str | None = None
    """Access key of the object storage. Without this setting, each process uses temporary AWS keys
    from its web identity, container role or instance role."""

    s3_secret_key: Annotated[SecretStr | None, required_together("s3_access_key")] = None
    """Secret key of the object storage"""

    s3_keys_url: BaseUrl | None = None
    """URL of a server for temporary keys, instead of AWS. The server must be an STS server for web
    identities, or have the interface of the instance metadata service."""

    s3_bucket: Annotated[str, BUCKET_NAME] = "pressroom"
    """Bucket for all objects"""

    s3_encryption: Encryption | None = None
    """Encryption by the object storage: sse-s3, or sse-kms: and the id or ARN of a key. Without
    this setting, the bucket's default applies."""


class BucketSettings(ObjectStorageSettings):
    s3_admin_access_key: str | None = None
    """Access key of a MinIO or Silo administrator. Only pressroom bucket uses it, to create the
    access key's user and grant it access to the bucket. Without this setting, the access key itself
    creates the bucket."""

    s3_admin_secret_key: Annotated[SecretStr | None, required_together("s3_admin_access_key")] = (
        None
    )
    """Secret key of the MinIO or Silo administrator"""

    @field_validator("s3_admin_access_key")
    @classmethod
    def _for_a_user(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None and info.data.get("s3_access_key") is None:
            raise ValueError(f"requires {variable_of('s3_access_key')}, whose user it creates")
        return value


def _check_backup_url(text: str) -> None:
    """Raise ``ValueError`` for an invalid URL. The message doesn't quote the URL, which may contain
    a secret key.
    """
    try:
        url = urlsplit(text)
        has_valid_port = url.port != 0
    except ValueError:
        url = urlsplit("")
        has_valid_port = False
    if url.scheme == "file" and not url.netloc and url.path.startswith("/"):
        return
    bucket = url.path.strip("/").partition("/")[0]
    if url.scheme not in {"http", "https"} or not (url.hostname and bucket and has_valid_port):
        raise ValueError(
            "must have the form file:///folder, or https://access-key:secret-key@host/bucket with "
            "percent-encoded keys"
        )
    require_bucket_name(bucket)


class BackupSettings(DatabaseSettings):
    backup_url: Annotated[SecretStr | None, parsable_by(_check_backup_url)] = None
    """Location of backups: file:///folder, or another bucket as
    https://access-key:secret-key@host/bucket/prefix?region=eu-west-1. Without this setting, no
    backups are made."""

    backup_keys: Annotated[
        SecretStr | None, parsable_by(Keyring.parse), required_together("backup_url")
    ] = None
    """Encryption keys for backups, in the format of the secret keys. If a key is lost, all backups
    encrypted with it are lost."""

    backup_database_url: Annotated[SecretStr | None, POSTGRES] = None
    """URL of the database server for backups, if the database URL points to a connection pool"""

    backup_hours: int = Field(default=24, ge=0)
    """Hours between automatic backups; 0 disables them"""

    backup_days: int = Field(default=30, ge=1)
    """Days to keep backups; the newest backup is always kept"""


class BrokerSettings(LogSettings):
    """The settings of every process that has a Celery application."""

    broker_url: RedisUrl = None
    """URL of Redis or Valkey for messages to workers, in the format of the Redis URL. The default
    is the Redis URL."""

    redis_url: RedisUrl = None
    """URL of Redis or Valkey, for the broker and the cache: redis://user:password@host:port/0, or
    rediss:// for TLS. Use sentinel:// or sentinel+tls:// for Sentinels."""

    @field_validator("redis_url")
    @classmethod
    def _needed_by_the_broker(
        cls, value: SecretStr | None, info: ValidationInfo
    ) -> SecretStr | None:
        if value is None and "broker_url" in info.data and info.data["broker_url"] is None:
            raise PydanticCustomError("missing", "is required")
        return value

    @property
    def broker(self) -> str:
        return _first_url(self.broker_url, self.redis_url)


class CacheSettings(BrokerSettings):
    """The settings of every process that sends or receives notifications."""

    cache_url: RedisUrl = None
    """URL of Redis or Valkey for requests, notifications, counters and caches, in the format of the
    Redis URL. The default is the Redis URL."""

    @field_validator("cache_url")
    @classmethod
    def _needed_without_a_redis(
        cls, value: SecretStr | None, info: ValidationInfo
    ) -> SecretStr | None:
        if value is None and "redis_url" in info.data and info.data["redis_url"] is None:
            raise ValueError(f"is required if {variable_of('redis_url')} is not set")
        return value

    @property
    def cache(self) -> str:
        return _first_url(self.cache_url, self.redis_url)


class FlowerSettings(BrokerSettings):
    flower_user: str = "operator"
    """User name for Flower"""

    flower_password: OperatorSecret = None
    """Password for Flower, with at least 20 characters; Flower doesn't start without a password"""

    flower_read_only: bool = True
    """Show workers and tasks in Flower without actions that stop or change them"""


def _first_url(url: SecretStr | None, fallback: SecretStr | None) -> str:
    chosen_url = url or fallback
    assert chosen_url is not None  # a validator requires that one URL is set
    return chosen_url.get_secret_value()
