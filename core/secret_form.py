"""The formats of generated secrets.

A generated secret consists of a prefix, 256 random bits and a checksum. The checksum reveals typos
in a secret without a database query. Leak scanners recognize a secret by its prefix and checksum.
"""

import secrets
import zlib
from dataclasses import dataclass

_SECRET_CHARACTERS = 43  # 62**43 > 2**256
_CHECKSUM_CHARACTERS = 6  # 62**6 > 2**32
_BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True)
class SecretForm:
    prefix: str

    def generate(self) -> str:
        random_part = _base62(secrets.randbits(256), _SECRET_CHARACTERS)
        return self.prefix + random_part + self._checksum(random_part)

    def matches(self, secret: str) -> bool:
        body = secret.removeprefix(self.prefix)
        if body == secret or len(body) != _SECRET_CHARACTERS + _CHECKSUM_CHARACTERS:
            return False
        random_part = body[:_SECRET_CHARACTERS]
        expected = self.prefix + random_part + self._checksum(random_part)
        return secrets.compare_digest(expected.encode(), secret.encode(errors="replace"))

    def _checksum(self, random_part: str) -> str:
        checksum = zlib.crc32((self.prefix + random_part).encode(errors="replace"))
        return _base62(checksum, _CHECKSUM_CHARACTERS)


API_KEY = SecretForm("prk_")
ACCESS_TOKEN = SecretForm("pra_")
REFRESH_TOKEN = SecretForm("prr_")
AUTHORIZATION_CODE = SecretForm("prc_")
CLIENT_SECRET = SecretForm("prs_")


def _base62(number: int, width: int) -> str:
    digits = []
    for _ in range(width):
        number, digit = divmod(number, 62)
        digits.append(_BASE62[digit])
    return "".join(reversed(digits))
