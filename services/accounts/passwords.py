"""Passwords as argon2id hashes, with the parameters that RFC 9106 recommends second (64 MiB).

Each call takes a core and that memory for a while; the caller lets only a few run at once.
"""

from dataclasses import dataclass
from functools import lru_cache

from argon2 import PasswordHasher
from argon2.exceptions import Argon2Error, InvalidHashError

from core.errors.people import PASSWORD_COMMON, PASSWORD_LENGTH, PASSWORD_PERSONAL

MIN_PASSWORD_CHARACTERS = 8
MAX_PASSWORD_CHARACTERS = 1024
COMMON_PASSWORDS = 10_000

_hasher = PasswordHasher()


@dataclass(frozen=True)
class PasswordCheck:
    matches: bool
    # A new hash, to store in place of one that was made with older parameters.
    renewed: str | None = None


def require_allowed(password: str, *personal: str | None) -> None:
    """Raises ``password.length``, ``password.common`` and ``password.personal``.

    ``personal``: the person's address and names, which are tried first by those who know them.
    """
    if not MIN_PASSWORD_CHARACTERS <= len(password) <= MAX_PASSWORD_CHARACTERS:
        raise PASSWORD_LENGTH(least=MIN_PASSWORD_CHARACTERS, most=MAX_PASSWORD_CHARACTERS)
    folded = _folded(password)
    if folded in _common():
        raise PASSWORD_COMMON(number=f"{COMMON_PASSWORDS:,}")
    for text in filter(None, personal):
        if folded in {_folded(word) for word in (text, text.partition("@")[0], *text.split())}:
            raise PASSWORD_PERSONAL()


def make(password: str, *personal: str | None) -> str:
    """The hash of a new password; raises what ``require_allowed`` raises."""
    require_allowed(password, *personal)
    return _hasher.hash(_bytes(password))


def verify(kept: str | None, password: str) -> PasswordCheck:
    """Return whether the password matches; without a hash the check takes as long."""
    if len(password) > MAX_PASSWORD_CHARACTERS:
        password = ""
    try:
        matches = _hasher.verify(kept or _unused_hash(), _bytes(password)) and kept is not None
    except (Argon2Error, InvalidHashError):
        matches = False
    if matches and kept is not None and _hasher.check_needs_rehash(kept):
        return PasswordCheck(matches, _hasher.hash(_bytes(password)))
    return PasswordCheck(matches)


def _bytes(password: str) -> bytes:
    # A form may hold lone surrogates, which strict UTF-8 would refuse.
    return password.encode("utf-8", "surrogatepass")


def _folded(text: str) -> str:
    """The text without capitals and spaces."""
    return "".join(text.casefold().split())


@lru_cache(maxsize=1)
def _common() -> frozenset[str]:
    """The passwords that were found most often in leaked lists, by zxcvbn's count (MIT licence)."""
    # Most processes never see a new password, and the module is a megabyte.
    from zxcvbn.frequency_lists import FREQUENCY_LISTS

    return frozenset(FREQUENCY_LISTS["passwords"][:COMMON_PASSWORDS])


@lru_cache(maxsize=1)
def _unused_hash() -> str:
    return _hasher.hash("a password that no person has")
