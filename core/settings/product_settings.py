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
    """A streaming replica of the database, from which exports and checks of the ledger are read;
    without it they are read from the database"""

    public_url: BaseUrl
    """URL of the API for its callers, without a final slash"""

    pages_url: BaseUrl | None = None
    """URL of readers' pages, such as sign-up and preferences, on a host of their own and without a
    path; without it they are under the public URL"""

    media_base_url: BaseUrl | None = None
    """URL of a CDN in front of /media, for unencrypted media only; without it media are under the
    public URL"""

    secret_keys: Keys
    """Signing keys, each id:base64url of 32 bytes, comma separated; the first one signs, all of
    them verify"""

    encryption_keys: Keys
    """Keys that encrypt attachments and the files of imports and exports, written like the secret
    keys; losing a key loses every file that it encrypted"""

    api_key_header: str = "X-API-Key"
    """Header that may carry an API key"""

    trusted_proxies: TrustedProxies = None
    """IP addresses or networks of proxies whose forwarded headers are trusted, comma separated, or
    the word none; the API needs it where the public URL is https"""

    api_drain: float = Field(default=5.0, ge=0, le=60)
    """Seconds for which an API process that is asked to end still serves, while /readyz says 503:
    longer than proxies take to notice"""

    credits_per_usd: notations.CreditsPerUsd = Decimal(100)
    """How many credits a US dollar buys"""

    currencies: notations.Currencies = Field(
        default=notations.DEFAULT_CURRENCIES, validate_default=True
    )
    """Currencies in which credits are sold, comma separated, each code:units per USD:smallest
    order; the first is the default"""

    composer_price: notations.ComposerPrice = None
    """Credits for each call of the composer that a language model answers, at most four decimals;
    without it such calls cost nothing"""

    redirect_origins: Origins = ()
    """Origins to which payers and people who signed up by a form may be sent back, such as
    https://www.example.com, comma separated; the word loopback stands for every port of the same
    machine"""

    webhook_allowed_networks: Networks = ()
    """Networks besides the public internet whose servers webhooks may call, also by http and at any
    port, such as 10.2.0.0/16, comma separated"""

    rate_limit_default: RateLimits = "30000/minute"
    """How often each user may call, such as 600/minute; empty: no limit"""

    rate_limit_anonymous: RateLimits = "1200/minute"
    """How often each IP address may call without credentials; empty: no limit"""

    rate_limit_login: RateLimits = "60/minute"
    """How often each IP address may log in, register, ask for a new password or order without
    credentials; empty: no limit"""

    require_second_factor: bool = False
    """Whether each person needs a second factor to log in; operators always need one"""

    mail_limit_mailbox: RateLimits = "6/hour;20/day"
    """How many mails strangers may have sent to one mailbox without an account; empty: no limit"""

    mail_limit_domain: RateLimits = "1000/hour"
    """How many mails strangers may have sent to the mailboxes of one domain; empty: no limit"""

    mail_limit_list: RateLimits = "1000/hour"
    """How many mails strangers may have sent about one list; empty: no limit"""

    mail_limit_source: RateLimits = "200/hour"
    """How many mails the strangers of one network (IPv4 /24, IPv6 /64) may have sent; empty: no
    limit"""

    quota_free: Quotas = Field(default=notations.DEFAULT_QUOTA_FREE, validate_default=True)
    """The limits of an owner on the free plan, each as quota=number, comma separated; what is not
    named has no limit"""

    quota_paid: Quotas = Field(default=notations.DEFAULT_QUOTA_PAID, validate_default=True)
    """The limits of an owner on the paid plan, written like those of the free plan"""

    deny_list: DeniedNames = ()
    """Addresses and domains that no list takes as new members, comma separated, or the path of a
    file that has one a line; *.example.com stands for all subdomains"""

    retention: notations.RetentionDays = Field(
        default=notations.DEFAULT_RETENTION, validate_default=True
    )
    """For how many days rows are kept, each as name=days, comma separated; what is not named is
    kept for as long as by default"""

    api_docs: bool = True
    """Serve /docs and /openapi.json"""

    hsts_subdomains: bool = False
    """Make browsers use TLS for all hosts below the public URL's host too"""

    metrics_token: stores.OperatorSecret = None
    """Bearer token for /metrics, at least 20 characters; without it /metrics is closed"""

    security_contacts: Contacts = ()
    """Where people report a hole in security, as /.well-known/security.txt says: mailto:, https: or
    tel: URIs, comma separated; without one there is no such page"""

    security_policy: BaseUrl | None = None
    """URL of the page that says how reports of a hole are dealt with, for the same page"""

    ready_file: Path | None = None
    """File that a worker touches once it takes jobs"""

    alive_file: Path | None = None
    """File that a worker touches each second while its loop turns and its broker answers"""

    worker_metrics_address: str | None = Field(default=None, pattern=r"^[0-9A-Za-z.-]+:[0-9]{1,5}$")
    """Address and port at which a worker answers /metrics to whoever asks, such as 0.0.0.0:9464;
    without it none does"""

    worker_grace: float = Field(default=10.0, ge=0)
    """Seconds that a stopping worker gives its running jobs"""

    patience: float = Field(default=86_400.0, ge=0)
    """Seconds for which a job is tried while a server that it needs fails; a day by default"""

    @field_validator("api_key_header")
    @classmethod
    def _header_name(cls, value: str) -> str:
        if not _TOKEN.match(value) or value.lower() == "authorization":
            raise ValueError("must be the name of a header, and not Authorization")
        return value

    @field_validator("pages_url")
    @classmethod
    def _other_host(cls, value: AnyHttpUrl | None, info: ValidationInfo) -> AnyHttpUrl | None:
        public = info.data.get("public_url")
        if value is None or public is None:
            return value
        if value.host == public.host or value.scheme != public.scheme or value.path != "/":
            raise ValueError(
                "must have another host than the public URL, the same scheme and no path"
            )
        return value

    @field_validator("security_contacts")
    @classmethod
    def _contact_uris(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not all(map(_CONTACT.match, value)):
            raise ValueError("must be URIs that begin with mailto:, https:// or tel:")
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
                f"{PREFIX}TRUSTED_PROXIES: is needed where the public URL is https: the addresses "
                f"of the proxies in front of the API, or {_NO_PROXY}"
            )
        return tuple(map(str, self.trusted_proxies or ()))

    @property
    def webhook_networks(self) -> tuple[IPv4Network | IPv6Network, ...]:
        """Return the networks that webhooks may call in addition to the public internet."""
        return tuple(ip_network(str(network)) for network in self.webhook_allowed_networks)

    @property
    def public_origin(self) -> str:
        """Return the normalized origin of the public URL, without a default port."""
        return _format_origin(self.public_url)

    @property
    def pages_base(self) -> str:
        return str(self.pages_url or self.public_url).rstrip("/")

    @property
    def pages_host(self) -> str:
        """Return the normalized host of readers' pages, without a default port."""
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
    """The settings of a worker that serves only the media queue.

    The media worker must not have signing keys, because it decodes untrusted uploads.
    """

    secret_keys: SecretStr = SecretStr("")


def _format_origin(url: AnyHttpUrl) -> str:
    default = {"http": 80, "https": 443}[url.scheme]
    port = "" if url.port in (None, default) else f":{url.port}"
    return f"{url.scheme}://{url.host}{port}"


@lru_cache(maxsize=1)
def load_settings() -> Settings:
    """Read all settings from the environment, or raise ``SettingsError``.

    Every call of ``load_settings`` returns the same object.
    """
    return read_settings(Settings)
