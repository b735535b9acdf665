"""Fetches and verifies the certificates with which Amazon SNS signs its messages.

Amazon SNS serves the signing certificate without the certificates of its issuers. Each certificate
contains the URL of its issuer's certificate (*Authority Information Access*). The issuer's
certificate is downloaded without TLS, so an attacker could replace it. The signing certificate is
therefore trusted only if its chain of issuers ends in a root certificate that the system trusts.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import TypeVar
from weakref import WeakValueDictionary

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from core.errors.senders import SENDER_BUSY_FOR_SNS, SENDER_SIGNATURE_INVALID
from core.logging import get_logger
from integrations.http_client import (
    AsyncHttpClient,
    HttpBounds,
    HttpFailure,
    HttpReply,
    NotConnected,
    ReplyRefused,
    describe_failure,
)
from integrations.receivers.destinations import (
    DestinationRefused,
    HostUnknown,
    Resolver,
    parse_url,
    resolve_addresses,
)
from integrations.senders.certificate_chains import (
    find_issuer_url,
    is_issued_by,
    is_trusted_sns_chain,
    is_valid_at,
    load_system_roots,
    parse_certificates,
)
from integrations.senders.sns_topics import SnsTopic, relocate_url

Value = TypeVar("Value")

_log = get_logger(__name__)

# The URL of the trusted root certificates, if a sandbox replaces Amazon's servers. ``relocate_url``
# replaces the host in ``ROOTS_URL`` by the host of the sandbox.
ROOTS_URL = "https://sns.amazonaws.com/roots.pem"

_BOUNDS = HttpBounds(
    max_seconds=3.0, max_connect_seconds=2.0, max_reply_bytes=16 * 1024, provider="Amazon SNS"
)
# The time limit for fetching a signing certificate and the certificates of its issuers. The time
# limit includes the wait while another certificate of the same region is fetched.
_MAX_SECONDS = 10.0
_CACHE_LIFETIME = timedelta(days=1)
_MAX_CACHED_CERTIFICATES = 100
# How long Pressroom refuses the URL of an untrusted or missing certificate without trying another
# download. Pressroom soon tries again, because SNS may serve a missing certificate later.
_REFUSAL_LIFETIME = timedelta(minutes=1)
_MAX_REFUSED_URLS = 1_000
_MAX_WAITING_PER_TOPIC = 100
_MAX_ISSUERS = 3
_MAX_ADDRESSES_TRIED = 3


class CertificateRefused(Exception):
    pass


class CertificateUnavailable(Exception):
    """Raised if a certificate can't be fetched now. The exception's message is logged."""


@dataclass(frozen=True)
class _CachedCertificate:
    certificate: x509.Certificate
    fetched_at: datetime


class SnsCertificates:
    """Fetches the signing certificates of SNS, and caches each certificate for a day.

    Anybody who knows a sender's URL can post fake messages with URLs of certificates that don't
    exist. Three rules limit the downloads that fake messages can cause. Only one certificate per
    region is fetched at a time. While messages of a topic wait for a certificate, messages of the
    same topic are rejected if they need a different certificate. All messages with the URL of an
    untrusted or missing certificate are rejected for a minute.

    Args:
        base_url: the URL of a sandbox that replaces Amazon's servers, or ``None``. The sandbox must
            run on this machine, because Pressroom trusts the sandbox's root certificates.
    """

    def __init__(self, base_url: str | None = None, resolve: Resolver | None = None) -> None:
        self._base_url = base_url
        self._resolve = resolve
        self._cache: OrderedDict[str, _CachedCertificate] = OrderedDict()
        self._refused_urls: OrderedDict[str, datetime] = OrderedDict()
        self._region_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        # Maps the ARN of an SNS topic to the certificate URLs for which the topic's messages wait.
        # If several messages wait for the same URL, the list contains the URL several times.
        self._waiting_urls: dict[str, list[str]] = {}

    def find_cached_key(self, topic: SnsTopic, url: str, now: datetime) -> RSAPublicKey | None:
        """Return the key like ``find_key``, or ``None`` if the certificate must be fetched.

        Raises ``sender.signature_invalid``.
        """
        if not topic.is_certificate_url(url):
            raise SENDER_SIGNATURE_INVALID()
        try:
            certificate = self._find_fresh(url, now)
        except CertificateRefused:
            raise SENDER_SIGNATURE_INVALID() from None
        return None if certificate is None else _get_key(certificate, now)

    async def find_key(self, topic: SnsTopic, url: str, now: datetime) -> RSAPublicKey:
        """Return the public key in the certificate at ``url``.

        Raises ``sender.signature_invalid`` if the certificate can't be trusted, or if the URL
        doesn't belong to SNS in the topic's region. Raises ``sender.busy`` if a server is
        unreachable, if too many messages of the topic wait for a certificate, or if another message
        of the topic waits for a different certificate.
        """
        if not topic.is_certificate_url(url):
            raise SENDER_SIGNATURE_INVALID()
        try:
            certificate = self._find_fresh(url, now) or await self._refresh(topic, url, now)
        except CertificateRefused:
            raise SENDER_SIGNATURE_INVALID() from None
        except CertificateUnavailable:
            raise SENDER_BUSY_FOR_SNS() from None
        return _get_key(certificate, now)

    def _find_fresh(self, url: str, now: datetime) -> x509.Certificate | None:
        """Return the cached certificate, or ``None`` if it is missing or older than a day.

        Raises ``CertificateRefused`` if the certificate at the URL was refused less than a minute
        ago.
        """
        refused_at = self._refused_urls.get(url)
        if refused_at is not None and abs(now - refused_at) < _REFUSAL_LIFETIME:
            raise CertificateRefused
        entry = self._cache.get(url)
        is_fresh = entry is not None and abs(now - entry.fetched_at) < _CACHE_LIFETIME
        return entry.certificate if entry and is_fresh else None

    async def _refresh(self, topic: SnsTopic, url: str, now: datetime) -> x509.Certificate:
        """Fetch a certificate whose cached copy is missing or older than a day.

        If SNS is unreachable, or if another certificate of the region is being fetched, return the
        cached copy even if the copy is older than a day. The cached copy of an expired certificate
        is never returned.
        """
        lock = self._region_locks.setdefault(topic.region, asyncio.Lock())
        entry = self._cache.get(url)
        old_certificate = (
            entry.certificate if entry and is_valid_at(entry.certificate, now) else None
        )
        if old_certificate is not None and lock.locked():
            return old_certificate
        try:
            with self._join_queue(topic, url):
                async with asyncio.timeout(_MAX_SECONDS), lock:
                    return self._find_fresh(url, now) or await self._fetch(url, now)
        except (CertificateUnavailable, TimeoutError) as error:
            reason = str(error) or "timeout"
            _log.warning("sns_certificate_unavailable", reason=reason, region=topic.region)
            if old_certificate is None:
                raise CertificateUnavailable from None
            return old_certificate

    @contextmanager
    def _join_queue(self, topic: SnsTopic, url: str) -> Iterator[None]:
        urls = self._waiting_urls.setdefault(topic.arn, [])
        if len(urls) >= _MAX_WAITING_PER_TOPIC or any(other != url for other in urls):
            raise CertificateUnavailable("other messages of the topic wait")
        urls.append(url)
        try:
            yield
        finally:
            urls.remove(url)
            if not urls:
                del self._waiting_urls[topic.arn]

    async def _fetch(self, url: str, now: datetime) -> x509.Certificate:
        try:
            certificate = await self._fetch_trusted(url, now)
        except CertificateRefused:
            self._cache.pop(url, None)
            _store(self._refused_urls, url, now, _MAX_REFUSED_URLS)
            raise
        _store(self._cache, url, _CachedCertificate(certificate, now), _MAX_CACHED_CERTIFICATES)
        return certificate

    async def _fetch_trusted(self, url: str, now: datetime) -> x509.Certificate:
        async with aclosing(AsyncHttpClient(_BOUNDS)) as client:
            chain = _parse_own_certificates(await self._download(client, url))
            roots = await self._load_roots(client)
            while not is_trusted_sns_chain(chain, roots, now):
                issuer_url = find_issuer_url(chain[-1])
                if issuer_url is None or len(chain) > _MAX_ISSUERS:
                    _log.warning("sns_certificate_refused", reason="no chain to a trusted root")
                    raise CertificateRefused
                chain.append(await self._fetch_issuer(client, issuer_url, chain[-1]))
        return chain[0]

    async def _load_roots(self, client: AsyncHttpClient) -> Sequence[x509.Certificate]:
        if self._base_url is None:
            return await asyncio.to_thread(load_system_roots)
        return _parse_own_certificates(await self._download(client, ROOTS_URL))

    async def _download(self, client: AsyncHttpClient, url: str) -> bytes:
        try:
            reply = await client.send("GET", relocate_url(url, self._base_url))
        except ReplyRefused:
            raise CertificateRefused from None
        except HttpFailure as failure:
            raise CertificateUnavailable(describe_failure(failure)) from None
        if reply.status == HTTPStatus.OK:
            return reply.body
        is_outage = reply.status >= HTTPStatus.INTERNAL_SERVER_ERROR
        if is_outage or reply.status == HTTPStatus.TOO_MANY_REQUESTS:
            raise CertificateUnavailable(f"status {reply.status}")
        raise CertificateRefused

    async def _fetch_issuer(
        self, client: AsyncHttpClient, url: str, certificate: x509.Certificate
    ) -> x509.Certificate:
        """Return the certificate of the issuer that signed ``certificate``.

        Raises ``CertificateUnavailable`` even if the issuer's server returns a wrong certificate,
        so that SNS sends the message again. A genuine message must not be lost if an attacker on
        the network replaces the issuer's certificate, which is sent without TLS.
        """
        try:
            reply = await self._send_to_issuer(client, url)
            issuers = parse_certificates(reply.body) if reply.status == HTTPStatus.OK else []
        except HttpFailure as failure:
            raise CertificateUnavailable(f"issuer: {describe_failure(failure)}") from None
        except (DestinationRefused, HostUnknown, ValueError) as error:
            raise CertificateUnavailable(f"issuer: {type(error).__name__}") from None
        # Verify the issuer's certificate before downloading from the URL that the certificate
        # contains, because an attacker may have replaced the certificate.
        if not issuers or not is_issued_by(certificate, issuers[0]):
            raise CertificateUnavailable(f"issuer: no certificate in reply {reply.status}")
        return issuers[0]

    async def _send_to_issuer(self, client: AsyncHttpClient, url: str) -> HttpReply:
        """Send a GET request to an issuer's server, but never to a private IP address."""
        if self._base_url is not None:
            return await client.send("GET", relocate_url(url, self._base_url))
        location = parse_url(url)
        addresses = await asyncio.to_thread(resolve_addresses, location, (), self._resolve)
        *others, last = addresses[:_MAX_ADDRESSES_TRIED]
        headers = {"Host": location.authority}
        for address in others:
            try:
                return await client.send("GET", location.pinned(address), headers=headers)
            except NotConnected:
                continue
        return await client.send("GET", location.pinned(last), headers=headers)


def _get_key(certificate: x509.Certificate, now: datetime) -> RSAPublicKey:
    key = certificate.public_key()
    if not isinstance(key, RSAPublicKey) or not is_valid_at(certificate, now):
        raise SENDER_SIGNATURE_INVALID()
    return key


def _parse_own_certificates(content: bytes) -> list[x509.Certificate]:
    try:
        return parse_certificates(content)
    except ValueError:
        raise CertificateRefused from None


def _store(entries: OrderedDict[str, Value], key: str, value: Value, max_entries: int) -> None:
    """Remove the oldest value if there are more than ``max_entries`` values."""
    entries[key] = value
    entries.move_to_end(key)
    if len(entries) > max_entries:
        entries.popitem(last=False)
