"""Certificates for servers of the tests."""

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


@dataclass(frozen=True)
class Authority:
    """An authority of a company's own, which no system trusts by itself.

    Attributes:
        file: its certificate, for those who shall trust it.
    """

    file: Path
    key: ec.EllipticCurvePrivateKey

    def issue(self, path: Path) -> Path:
        """Write a key and its certificate for this machine's loopback address to the file."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        certificate = (
            _begun("server", "authority", key)
            .add_extension(x509.SubjectAlternativeName([name]), critical=False)
            .sign(self.key, hashes.SHA256())
        )
        return _write(path, key, certificate)


def authority(path: Path) -> Authority:
    """Make an authority, whose certificate is in the file."""
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        _begun("authority", "authority", key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return Authority(path, key)


def self_signed(path: Path) -> Path:
    """Write a key and a certificate of its own for `localhost` to the file."""
    key = ec.generate_private_key(ec.SECP256R1())
    names = x509.SubjectAlternativeName([x509.DNSName("localhost")])
    begun = _begun("localhost", "localhost", key).add_extension(names, critical=False)
    return _write(path, key, begun.sign(key, hashes.SHA256()))


def _begun(subject: str, issuer: str, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_named(subject))
        .issuer_name(_named(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


def _write(path: Path, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> Path:
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
    return path
