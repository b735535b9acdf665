"""All settings of the product, read from environment variables that start with ``PRESSROOM_``."""

import re
from decimal import Decimal
from functools import cached_property, lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Annotated

from pydantic import AnyHttpUrl, BeforeValidator, Field, SecretStr, ValidationInfo, field_validator
from pydantic.networks import IPvAnyNetwork
from pydantic_settings import NoDecode

from core.errors import SettingsError
from core.keyring import Keyring
from core.settings import notations
from core.settings import store_settings as stores
from core.settings.given_settings import PREFIX, read_settings
from core.settings.mail_server import MailSender
from core.settings.notations import COMMA_SEPARATED, Quotas, RateLimits, parsable_by
from core.settings.origins import Origins
from core.settings.plan_contact import PlanContact
from core.settings.provider_settings import ProviderSettings
from core.settings.store_settings import BaseUrl

_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+\Z")  # RFC 9110, 5.6.2
_CONTACT = re.compile(r"(?:mailto:|https://|tel:)[!-~]+\Z")

# The value of ``trusted_proxies`` for an API without a proxy.
_NO_PROXY = "none"

Keys = Annotated[SecretStr, parsable_by(Keyring.parse)]
Contacts = Annotated[tuple[str, ...], NoDecode, COMMA_SEPARATED]


def _read_no_proxy(value: object) -> object:
    return () if isinstance(value, str) and value.strip().lower() == _NO_PROXY else value


# Pydantic runs the last ``BeforeValidator`` of an annotation first.
TrustedProxies = Annotated[
    tuple[IPvAnyNetwork, ...] | None, NoDecode, COMMA_SEPARATED, BeforeValidator(_read_no_proxy)
]

DeniedNames = Annotated[
    tuple[str, ...],
    NoDecode,
    COMMA_SEPARATED,
    notations.OR_LINES_OF_A_FILE,
    notations.ADDRESSES_AND_DOMAINS,
]

Networks = Annotated[tuple[IPvAnyNetwork, ...], NoDecode, COMMA_SEPARATED]


class Settings(
    stores.MigrationSettings,
    stores.BucketSettings,
    stores.BackupSettings,
    stores.FlowerSettings,
    stores.CacheSettings,
    ProviderSettings,
):
    """All settings of the product, which the API and the workers read.

    ``core.settings.process_settings`` lists the settings that a deployment passes to each process.
    """

    read_database_url: Annotated[SecretStr | None, stores.POSTGRES] = None
    """URL of a streaming replica of the database, for exports and ledger checks. The default is the
    database URL."""

    public_url: BaseUrl
    """Public URL of the API, without a final slash"""

    pages_url: BaseUrl | None = None
    """URL of readers' pages, such as sign-up and preferences, on a separate host and without a
    path. The default is the public URL."""

    media_base_url: BaseUrl | None = None
    """URL of a CDN in front of /media, for unencrypted media only. The default is the public
    URL."""

    secret_keys: Keys
    """Comma-separated signing keys, each as id:base64url of 32 bytes. The first key signs, and all
    keys verify."""

    encryption_keys: Keys
    """Encryption keys for attachments and for files of imports and exports, in the format of the
    secret keys. If a key is lost, all files encrypted with it are lost."""

    api_key_header: str = "X-API-Key"
    """Additional HTTP header for API keys"""

    trusted_proxies: TrustedProxies = None
    """Comma-separated IP addresses or networks of proxies with trusted forwarded headers, or the
    word none. The API requires this setting if the public URL uses https."""

    api_drain: float = Field(default=5.0, ge=0, le=60)
    """Seconds for which a stopping API process still serves requests while /readyz responds with
    503. This time must exceed the time in which proxies notice the 503."""

    credits_per_usd: notations.CreditsPerUsd = Decimal(100)
    """Number of credits per US dollar"""

    currencies: notations.Currencies = Field(
        default=notations.DEFAULT_CURRENCIES, validate_default=True
    )
    """Comma-separated currencies for selling credits, each as code:units per USD:smallest order.
    The first currency is the default."""

    composer_price: notations.ComposerPrice = None
    """Credits per composer call with a language model, with at most four decimals; without this
    setting, calls are free"""

    redirect_origins: Origins = ()
    """Comma-separated origins to which browsers may be redirected after a payment or sign-up, such
    as https://www.example.com. The word loopback allows every port of the same machine."""

    webhook_allowed_networks: Networks = ()
    """Comma-separated private networks that webhooks may call, with http and all ports allowed,
    such as 10.2.0.0/16"""

    rate_limit_default: RateLimits = "30000/minute"
    """Maximum rate of requests per user, such as 600/minute. An empty value disables the limit."""

    rate_limit_anonymous: RateLimits = "1200/minute"
    """Maximum rate of requests without credentials per IP address. An empty value disables the
    limit."""

    rate_limit_login: RateLimits = "60/minute"
    """Maximum rate of logins, registrations, password resets and anonymous orders per IP address.
    An empty value disables the limit."""

    require_second_factor: bool = False
    """Require a second factor for all users; operators always need one"""

    owners_send: bool = True
    """Let owners create API keys with the scope delivery for their own lists. With False, such keys
    can't export rosters or mail members."""

    mail_limit_mailbox: RateLimits = "6/hour;20/day"
    """Maximum rate of mails that strangers can trigger to one mailbox without an account. An empty
    value disables the limit."""

    mail_limit_domain: RateLimits = "1000/hour"
    """Maximum rate of mails that strangers can trigger to all mailboxes of one domain. An empty
    value disables the limit."""

    mail_limit_list: RateLimits = "1000/hour"
    """Maximum rate of mails that strangers can trigger for one list. An empty value disables the
    limit."""

    mail_limit_source: RateLimits = "200/hour"
    """Maximum rate of mails that strangers from one network (IPv4 /24 or IPv6 /64) can trigger. An
    empty value disables the limit."""

    quota_free: Quotas = Field(default=notations.DEFAULT_QUOTA_FREE, validate_default=True)
    """Comma-separated limits for users on the free plan, each as quota=number. Quotas that aren't
    listed have no limit."""

    quota_paid: Quotas = Field(default=notations.DEFAULT_QUOTA_PAID, validate_default=True)
    """Limits for users on the paid plan, in the format of the free plan's limits"""

    deny_list: DeniedNames = ()
    """Comma-separated addresses and domains that can't join any list, or the path of a file with
    one entry per line. The entry *.example.com matches all subdomains."""

    retention: notations.RetentionDays = Field(
        default=notations.DEFAULT_RETENTION, validate_default=True
    )
    """Comma-separated retention periods in days, each as name=days. Rows that aren't listed keep
    the default period."""

    api_docs: bool = True
    """Serve /docs, /openapi.json and /llms.txt"""

    docs_url: BaseUrl | None = None
    """URL of the documentation site, to which the console, the development stack and alerts link.
    Without this setting, the console and alerts have no such links."""

    plan_contact: Annotated[str | None, parsable_by(PlanContact.parse)] = None
    """E-mail address or https URL where owners on the free plan can ask for the paid plan. Without
    this setting, the console shows no contact."""

    hsts_subdomains: bool = False
    """Require browsers to use TLS also for all subdomains of the public URL's host"""

    metrics_token: stores.OperatorSecret = None
    """Bearer token for /metrics, with at least 20 characters; without a token, /metrics is
    disabled"""

    security_contacts: Contacts = ()
    """Comma-separated contacts for security reports, as mailto:, https: or tel: URIs. The contacts
    are published in /.well-known/security.txt. Without this setting, there is no such page."""

    security_policy: BaseUrl | None = None
    """URL of the security policy, which is published in /.well-known/security.txt"""

    ready_file: Path | None = None
    """File that a worker touches when it is ready for jobs"""

    alive_file: Path | None = None
    """File that a worker touches every second while it is running and connected to the broker"""

    worker_metrics_address: Annotated[
        str | None,
        notations.matching(
            "[0-9A-Za-z.-]+:[0-9]{1,5}", "must have the form host:port, such as 0.0.0.0:9464"
        ),
    ] = None
    """Address and port for a worker's /metrics, which requires no token, such as 0.0.0.0:9464.
    Without this setting, workers serve no metrics."""

    worker_grace: float = Field(default=10.0, ge=0)
    """Seconds that a stopping worker waits for its running jobs"""

    patience: float = Field(default=86_400.0, ge=0)
    """Seconds for which a job is retried while a server is unavailable. The default is one day."""

    @field_validator("api_key_header")
    @classmethod
    def _header_name(cls, value: str) -> str:
        if not _TOKEN.match(value) or value.lower() == "authorization":
            raise ValueError("must be the name of a header other than Authorization")
        return value

    @field_validator("pages_url")
    @classmethod
    def _other_host(cls, value: AnyHttpUrl | None, info: ValidationInfo) -> AnyHttpUrl | None:
        public = info.data.get("public_url")
        if value is None or public is None:
            return value
        if value.host == public.host or value.scheme != public.scheme or value.path != "/":
            raise ValueError(
                "must have the scheme of the public URL, a different host, and no path"
            )
        return value

    @field_validator("security_contacts")
    @classmethod
    def _contact_uris(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not all(map(_CONTACT.match, value)):
            raise ValueError("must be URIs that start with mailto:, https:// or tel:")
        return value

    @property
    def public_base(self) -> str:
        return str(self.public_url).rstrip("/")

    def forwarding_networks(self) -> tuple[str, ...]:
        """Return the networks of the proxies whose forwarded headers the API trusts.

        Raises ``SettingsError`` if the public URL is https and ``trusted_proxies`` is missing.
        Without the address of the proxy that terminates TLS, all callers would share one rate
        limit.
        """
        if self.trusted_proxies is None and self.public_url.scheme == "https":
            raise SettingsError(
                f"{PREFIX}TRUSTED_PROXIES: is required because the public URL uses https; set the "
                f"addresses of the proxies in front of the API, or {_NO_PROXY}"
            )
        return tuple(map(str, self.trusted_proxies or ()))

    @property
    def webhook_networks(self) -> tuple[IPv4Network | IPv6Network, ...]:
        """Return the networks that webhooks may call in addition to the public internet."""
        return tuple(ip_network(str(network)) for network in self.webhook_allowed_networks)

    @property
    def public_origin(self) -> str:
        return _format_origin(self.public_url)

    @property
    def pages_base(self) -> str:
        return str(self.pages_url or self.public_url).rstrip("/")

    @property
    def pages_host(self) -> str:
        return _format_origin(self.pages_url or self.public_url).partition("://")[2]

    @property
    def own_names(self) -> tuple[str, ...]:
        """Return the product's name and the mail sender's name, because no list may have them."""
        names = ("Pressroom", MailSender.parse(self.mail_from).name)
        return tuple(dict.fromkeys(name for name in names if re.search(r"\w", name)))

    @property
    def media_base(self) -> str:
        return str(self.media_base_url or self.public_url).rstrip("/")

    @cached_property
    def keyring(self) -> Keyring:
        return Keyring.parse(self.secret_keys.get_secret_value())

    @cached_property
    def encryption_keyring(self) -> Keyring:
        return Keyring.parse(self.encryption_keys.get_secret_value())


class MediaSettings(Settings):
    """The media worker must not have signing keys, because it decodes untrusted uploads."""

    secret_keys: SecretStr = SecretStr("")


def _format_origin(url: AnyHttpUrl) -> str:
    default = {"http": 80, "https": 443}[url.scheme]
    port = "" if url.port in (None, default) else f":{url.port}"
    return f"{url.scheme}://{url.host}{port}"


@lru_cache(maxsize=1)
def load_settings() -> Settings:
    """Read all settings once, and return the same object for every call."""
    return read_settings(Settings)
