"""Parses certificates, and verifies their chain up to a root certificate of the system."""

import re
import ssl
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cache
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.utils import CryptographyDeprecationWarning
from cryptography.x509.oid import AuthorityInformationAccessOID
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

# Matches only URLs that contain no IP address, port or query, so that a hostile certificate can't
# make Pressroom send requests to servers in the operator's network.
_ISSUER_URL = re.compile(r"http://(?:[a-z0-9-]+\.)+[a-z]{2,}/[\w./-]+", re.ASCII)
_SNS_NAME_PREFIXES = ("sns.", "sns-")
_SNS_NAME_SUFFIXES = (".amazonaws.com", ".amazonaws.com.cn")


@cache
def load_system_roots() -> tuple[x509.Certificate, ...]:
    """Cache the certificates, because reading more than a hundred files is slow."""
    context = ssl.create_default_context()
    if not context.get_ca_certs():
        # OpenSSL reads the files in its folder of root certificates only on demand.
        folder = ssl.get_default_verify_paths().capath
        for file in sorted(Path(folder).glob("*.[0-9]")) if folder else ():
            context.load_verify_locations(file)
    roots = []
    with warnings.catch_warnings():
        # Accept some old root certificates whose serial number violates RFC 5280.
        warnings.simplefilter("ignore", CryptographyDeprecationWarning)
        for content in context.get_ca_certs(binary_form=True):
            with suppress(ValueError):
                roots.append(x509.load_der_x509_certificate(content))
    return tuple(roots)


def parse_certificates(content: bytes) -> list[x509.Certificate]:
    try:
        if content.lstrip().startswith(b"-----"):
            return x509.load_pem_x509_certificates(content)
        return [x509.load_der_x509_certificate(content)]
    except x509.InvalidVersion as error:
        raise ValueError(str(error)) from None


def is_trusted_sns_chain(
    chain: Sequence[x509.Certificate], roots: Sequence[x509.Certificate], now: datetime
) -> bool:
    name = next(_iterate_sns_names(chain[0]), None)
    if name is None or not roots:
        return False
    policy = PolicyBuilder().store(Store(list(roots))).time(now)
    try:
        policy.build_server_verifier(x509.DNSName(name)).verify(chain[0], list(chain[1:]))
    except VerificationError:
        return False
    return True


def is_issued_by(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (InvalidSignature, TypeError, UnsupportedAlgorithm, ValueError):
        return False
    return True


def is_valid_at(certificate: x509.Certificate, now: datetime) -> bool:
    return certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc


def find_issuer_url(certificate: x509.Certificate) -> str | None:
    return next(_iterate_issuer_urls(certificate), None)


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
