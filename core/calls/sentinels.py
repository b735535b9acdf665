"""The Sentinels of a Redis, as an operator writes them in one URL."""

from dataclasses import dataclass, field
from typing import Self
from urllib.parse import parse_qsl, unquote, urlsplit

_TLS = "sentinel+tls"
SENTINEL_SCHEMES = ("sentinel", _TLS)
_DEFAULT_PORT = 26379

_FORM = (
    "must be sentinel:// or sentinel+tls://, then user:password@host:port/number?master_name=name; "
    "further Sentinels follow, each as ;sentinel://host:port"
)


@dataclass(frozen=True)
class Sentinels:
    """Servers that know which Redis is the master now, and promote a replica when it is lost.

    Attributes:
        hosts: each Sentinel's host and port.
        master_name: what the Sentinels call the Redis and its replicas.
        user, password: the login at the Redis.
        sentinel_user, sentinel_password: the login at the Sentinels, if they ask for one.
        is_encrypted: whether every connection has TLS, those to the Sentinels too.
        ca_file: the certificates that sign the servers'; without it the system's are trusted.
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
        """Read ``sentinel://user:password@host:port/0?master_name=name;sentinel://host:port``.

        The first URL says everything but the hosts of the others. A ``ValueError`` never quotes it.
        """
        try:
            return cls._of(url)
        except (ValueError, KeyError):
            # The library's message would quote a part of the URL, perhaps of a password.
            raise ValueError(_FORM) from None

    @classmethod
    def _of(cls, url: str) -> Self:
        first, *others = parts = [urlsplit(each) for each in url.split(";")]
        if first.scheme not in SENTINEL_SCHEMES or first.fragment:
            raise ValueError
        if not all(each.hostname and each.scheme == first.scheme for each in parts):
            raise ValueError
        if any(each.path.strip("/") or each.query for each in others):
            raise ValueError
        said = dict(parse_qsl(first.query, strict_parsing=True))
        found = cls(
            hosts=tuple((each.hostname or "", each.port or _DEFAULT_PORT) for each in parts),
            master_name=said.pop("master_name"),
            database=int(first.path.strip("/") or 0),
            user=first.username and unquote(first.username),
            password=first.password and unquote(first.password),
            sentinel_user=said.pop("sentinel_user", None),
            sentinel_password=said.pop("sentinel_password", None),
            is_encrypted=first.scheme == _TLS,
            ca_file=said.pop("ssl_ca_certs", None),
        )
        if said:
            raise ValueError
        return found
