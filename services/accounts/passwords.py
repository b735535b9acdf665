"""Hashes and verifies passwords with argon2id.

The argon2id parameters follow the second recommendation of RFC 9106 and need 64 MiB of memory per
hash. Hashing is CPU-bound, so callers must limit how many passwords are hashed at the same time.
"""

from dataclasses import dataclass
from functools import lru_cache

from argon2 import PasswordHasher
from argon2.exceptions import Argon2Error, InvalidHashError

from core.errors.people import PASSWORD_COMMON, PASSWORD_LENGTH, PASSWORD_PERSONAL

MIN_PASSWORD_CHARACTERS = 8
MAX_PASSWORD_CHARACTERS = 1024
COMMON_PASSWORD_COUNT = 10_000

_hasher = PasswordHasher()


@dataclass(frozen=True)
class PasswordCheck:
    """The result of verifying a password.

    ``renewed`` is a new hash if the stored hash has outdated parameters.
    """

    matches: bool
    renewed: str | None = None


def require_allowed_password(password: str, *personal: str | None) -> None:
    """Raise an error for a weak password, or one that equals a text in ``personal``."""
    if not MIN_PASSWORD_CHARACTERS <= len(password) <= MAX_PASSWORD_CHARACTERS:
        raise PASSWORD_LENGTH(least=MIN_PASSWORD_CHARACTERS, most=MAX_PASSWORD_CHARACTERS)
    folded_password = _fold_text(password)
    if folded_password in _load_common_passwords():
        raise PASSWORD_COMMON(number=f"{COMMON_PASSWORD_COUNT:,}")
    for text in filter(None, personal):
        words = (text, text.partition("@")[0], *text.split())
        if folded_password in {_fold_text(word) for word in words}:
            raise PASSWORD_PERSONAL()


def hash_password(password: str, *personal: str | None) -> str:
    require_allowed_password(password, *personal)
    return _hasher.hash(_encode(password))


def verify_password(stored_hash: str | None, password: str) -> PasswordCheck:
    """Verify a password against its stored hash.

    Without a stored hash, verification fails but takes equally long, so that the response time
    doesn't reveal whether an account exists.
    """
    if len(password) > MAX_PASSWORD_CHARACTERS:
        password = ""
    try:
        is_match = _hasher.verify(stored_hash or _unused_hash(), _encode(password))
        matches = is_match and stored_hash is not None
    except (Argon2Error, InvalidHashError):
        matches = False
    if matches and stored_hash is not None and _hasher.check_needs_rehash(stored_hash):
        return PasswordCheck(matches, _hasher.hash(_encode(password)))
    return PasswordCheck(matches)


def _encode(password: str) -> bytes:
    # A submitted password may contain lone surrogates, which strict UTF-8 rejects.
    return password.encode("utf-8", "surrogatepass")


def _fold_text(text: str) -> str:
    return "".join(text.casefold().split())


@lru_cache(maxsize=1)
def _load_common_passwords() -> frozenset[str]:
    """Return the most frequent leaked passwords, from the library zxcvbn (MIT licence)."""
    # Import the list of common passwords only when needed, because it takes a megabyte of memory.
    from zxcvbn.frequency_lists import FREQUENCY_LISTS

    return frozenset(FREQUENCY_LISTS["passwords"][:COMMON_PASSWORD_COUNT])


@lru_cache(maxsize=1)
def _unused_hash() -> str:
    return _hasher.hash("a password that no person has")
