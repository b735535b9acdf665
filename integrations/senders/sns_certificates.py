"""Fetches and verifies the certificates with which Amazon SNS signs its messages.

SNS serves a signing certificate without the certificates of its issuers. A signing certificate
contains the URL of its issuer's certificate (*Authority Information Access*). An issuer's
certificate needs no TLS, because the chain of signatures up to a root of the system proves it.
"""

import asyncio
import re
import ssl
import warnings
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from weakref import WeakValueDictionary

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.utils import CryptographyDeprecationWarning
from cryptography.x509.oid import AuthorityInformationAccessOID
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from core.errors.senders import SENDER_BUSY_FOR_SNS, SENDER_SIGNATURE_INVALID
from core.logging import get_logger
from integrations.http_client import (
    AsyncHttpClient,
    HttpBounds,
    HttpFailure,
    ReplyRefused,
    describe_failure,
)
from integrations.senders.sns_topics import SnsTopic, relocate_url

_log = get_logger(__name__)

# The URL of the trusted roots on a server that replaces all servers of Amazon.
ROOTS_URL = "https://sns.amazonaws.com/roots.pem"

_BOUNDS = HttpBounds(
    max_seconds=3.0, max_connect_seconds=2.0, max_reply_bytes=16 * 1024, provider="Amazon SNS"
)
# The time limit for a certificate and its issuers, including the wait for other requests.
_MAX_SECONDS = 10.0
_CACHE_LIFETIME = timedelta(days=1)
_MAX_CACHED_CERTIFICATES = 100
_MAX_ISSUERS = 3
# Amazon's own certificate contains the URL, so the URL needs no list of allowed hosts. The pattern
# excludes IP addresses, other ports and unusual URLs.
_ISSUER_URL = re.compile(r"http://(?:[a-z0-9-]+\.)+[a-z]{2,}/[\w./-]+", re.ASCII)
_SNS_NAME_PREFIXES = ("sns.", "sns-")
_SNS_NAME_SUFFIXES = (".amazonaws.com", ".amazonaws.com.cn")


class SnsCertificates:
    """The signing certificates of SNS, each of which is cached for a day.

    Args:
        base_url: the URL of a server that replaces all servers of Amazon. The server also serves
            the trusted roots. Only a sandbox on this machine may replace Amazon's servers.
    """

    def __init__(self, base_url: str | None = None) -> None:
        self._base_url = base_url
        self._cache: OrderedDict[str, tuple[datetime, x509.Certificate]] = OrderedDict()
        self._region_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def find_key(self, topic: SnsTopic, url: str, now: datetime) -> RSAPublicKey:
        """Return the public key of the certificate at a URL of the topic's region.

        Raises ``sender.signature_invalid`` if the certificate can't be trusted. Raises
        ``sender.busy`` if a server is unreachable.
        """
        if not topic.is_certificate_url(url):
            raise SENDER_SIGNATURE_INVALID()
        certificate = self._find_cached(url, now)
        if certificate is None:
            lock = self._region_locks.setdefault(topic.region, asyncio.Lock())
            try:
                async with asyncio.timeout(_MAX_SECONDS), lock:
                    certificate = self._find_cached(url, now) or await self._fetch(url, now)
            except TimeoutError:
                _log.warning("sns_certificate_unavailable", reason="timeout", region=topic.region)
                raise SENDER_BUSY_FOR_SNS() from None
        key = certificate.public_key()
        if not isinstance(key, RSAPublicKey) or not _is_valid_at(certificate, now):
            raise SENDER_SIGNATURE_INVALID()
        return key

    def _find_cached(self, url: str, now: datetime) -> x509.Certificate | None:
        fetched_at, certificate = self._cache.get(url, (None, None))
        is_fresh = fetched_at is not None and abs(now - fetched_at) < _CACHE_LIFETIME
        return certificate if is_fresh else None

    async def _fetch(self, url: str, now: datetime) -> x509.Certificate:
        client = AsyncHttpClient(_BOUNDS)
        try:
            certificates = _parse_certificates(await self._download(client, url))
            roots = await self._load_roots(client)
            while not _is_trusted(certificates, roots, now):
                issuer_url = next(_iterate_issuer_urls(certificates[-1]), None)
                if issuer_url is None or len(certificates) > _MAX_ISSUERS:
                    _log.warning("sns_certificate_refused", reason="no chain to a root")
                    raise SENDER_SIGNATURE_INVALID()
                certificates += _parse_certificates(await self._download(client, issuer_url))
        finally:
            await client.aclose()
        self._cache[url] = (now, certificates[0])
        if len(self._cache) > _MAX_CACHED_CERTIFICATES:
            self._cache.popitem(last=False)
        return certificates[0]

    async def _load_roots(self, client: AsyncHttpClient) -> list[x509.Certificate]:
        if self._base_url is None:
            return await asyncio.to_thread(load_system_roots)
        return _parse_certificates(await self._download(client, ROOTS_URL))

    async def _download(self, client: AsyncHttpClient, url: str) -> bytes:
        try:
            reply = await client.send("GET", relocate_url(url, self._base_url))
        except ReplyRefused:
            raise SENDER_SIGNATURE_INVALID() from None
        except HttpFailure as failure:
            _log.warning("sns_certificate_unavailable", reason=describe_failure(failure))
            raise SENDER_BUSY_FOR_SNS() from None
        if reply.status == HTTPStatus.OK:
            return reply.body
        is_outage = reply.status >= HTTPStatus.INTERNAL_SERVER_ERROR
        if is_outage or reply.status == HTTPStatus.TOO_MANY_REQUESTS:
            _log.warning("sns_certificate_unavailable", reason=f"status {reply.status}")
            raise SENDER_BUSY_FOR_SNS()
        raise SENDER_SIGNATURE_INVALID()


def load_system_roots() -> list[x509.Certificate]:
    """Return the roots that the system trusts. The function reads more than a hundred files."""
    context = ssl.create_default_context()
    if not context.get_ca_certs():
        # OpenSSL reads the system's folder of roots only on demand.
        folder = ssl.get_default_verify_paths().capath
        for file in sorted(Path(folder).glob("*.[0-9]")) if folder else ():
            context.load_verify_locations(file)
    roots = []
    with warnings.catch_warnings():
        # Some old roots violate rules about serial numbers, and can still be used.
        warnings.simplefilter("ignore", CryptographyDeprecationWarning)
        for content in context.get_ca_certs(binary_form=True):
            with suppress(ValueError):
                roots.append(x509.load_der_x509_certificate(content))
    return roots


def _parse_certificates(content: bytes) -> list[x509.Certificate]:
    """Parse certificates in PEM, or one certificate in DER.

    Raises ``sender.signature_invalid``.
    """
    try:
        if content.lstrip().startswith(b"-----"):
            return x509.load_pem_x509_certificates(content)
        return [x509.load_der_x509_certificate(content)]
    except ValueError:
        raise SENDER_SIGNATURE_INVALID() from None


def _is_trusted(
    certificates: Sequence[x509.Certificate], roots: Sequence[x509.Certificate], now: datetime
) -> bool:
    """Return whether the first certificate belongs to SNS, and chains to a root."""
    leaf = certificates[0]
    name = next(_iterate_sns_names(leaf), None)
    if name is None or not roots:
        return False
    policy = PolicyBuilder().store(Store(list(roots))).time(now)
    try:
        policy.build_server_verifier(x509.DNSName(name)).verify(leaf, list(certificates[1:]))
    except VerificationError:
        return False
    return True


def _is_valid_at(certificate: x509.Certificate, now: datetime) -> bool:
    return certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc


def _iterate_sns_names(certificate: x509.Certificate) -> Iterator[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return
    for name in names.get_values_for_type(x509.DNSName):
        if name.startswith(_SNS_NAME_PREFIXES) and name.endswith(_SNS_NAME_SUFFIXES):
            yield name


def _iterate_issuer_urls(certificate: x509.Certificate) -> Iterator[str]:
    try:
        access = certificate.extensions.get_extension_for_class(x509.AuthorityInformationAccess)
    except (x509.ExtensionNotFound, ValueError):
        return
    for description in access.value:
        location = description.access_location
        is_issuer = description.access_method == AuthorityInformationAccessOID.CA_ISSUERS
        url = location.value if isinstance(location, x509.UniformResourceIdentifier) else ""
        if is_issuer and _ISSUER_URL.fullmatch(url):
            yield url
