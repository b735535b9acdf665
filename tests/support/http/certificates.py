"""Creates TLS certificates for the servers of tests."""

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


@dataclass(frozen=True)
class Authority:
    """A private certificate authority, which no system trusts by default."""

    file: Path
    key: ec.EllipticCurvePrivateKey

    def issue(self, path: Path) -> Path:
        """Write a new key and a certificate for the loopback address to the file ``path``."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        certificate = (
            _begin_certificate("server", "authority", key)
            .add_extension(x509.SubjectAlternativeName([name]), critical=False)
            .sign(self.key, hashes.SHA256())
        )
        return _write(path, key, certificate)


def authority(path: Path) -> Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        _begin_certificate("authority", "authority", key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return Authority(path, key)


def self_signed(path: Path) -> Path:
    """Write a new key and a self-signed certificate for `localhost` to the file ``path``."""
    key = ec.generate_private_key(ec.SECP256R1())
    names = x509.SubjectAlternativeName([x509.DNSName("localhost")])
    builder = _begin_certificate("localhost", "localhost", key)
    certificate = builder.add_extension(names, critical=False).sign(key, hashes.SHA256())
    return _write(path, key, certificate)


def _begin_certificate(
    subject: str, issuer: str, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_build_name(subject))
        .issuer_name(_build_name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
    )


def _build_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


def _write(path: Path, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> Path:
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
    return path
