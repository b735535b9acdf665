"""Passwords as argon2id hashes, with the parameters that RFC 9106 recommends second (64 MiB).

Each call takes a core and that memory for a while; who calls sees to it that few run at once.
"""

from dataclasses import dataclass
from functools import lru_cache

from argon2 import PasswordHasher
from argon2.exceptions import Argon2Error, InvalidHashError

from core.refusals.people import PASSWORD_LENGTH

MIN_PASSWORD_CHARACTERS = 8
MAX_PASSWORD_CHARACTERS = 1024

_hasher = PasswordHasher()


@dataclass(frozen=True)
class PasswordCheck:
    matches: bool
    # To be kept in place of a hash that was made with older parameters.
    renewed: str | None = None


def require_length(password: str) -> None:
    """Raises ``password.length``."""
    if not MIN_PASSWORD_CHARACTERS <= len(password) <= MAX_PASSWORD_CHARACTERS:
        raise PASSWORD_LENGTH(least=MIN_PASSWORD_CHARACTERS, most=MAX_PASSWORD_CHARACTERS)


def make(password: str) -> str:
    """The hash of a new password; raises ``password.length``."""
    require_length(password)
    return _hasher.hash(_bytes(password))


def verify(kept: str | None, password: str) -> PasswordCheck:
    """Whether it is the password. Without a hash it takes as long, and never is."""
    if len(password) > MAX_PASSWORD_CHARACTERS:
        password = ""
    matches = _matches(kept or _nobodys(), password) and kept is not None
    if matches and kept is not None and _hasher.check_needs_rehash(kept):
        return PasswordCheck(matches, _hasher.hash(_bytes(password)))
    return PasswordCheck(matches)


def _matches(kept: str, password: str) -> bool:
    try:
        return _hasher.verify(kept, _bytes(password))
    except (Argon2Error, InvalidHashError):
        return False


def _bytes(password: str) -> bytes:
    # A form may have what is no text at all.
    return password.encode("utf-8", "surrogatepass")


@lru_cache(maxsize=1)
def _nobodys() -> str:
    return _hasher.hash("a password that nobody has")
