"""Makes password hashes cheap in the current process, so that logins in tests are fast.

The module replaces a private attribute, because the product has no setting for the hash's cost.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from argon2 import PasswordHasher, profiles

from services.accounts import passwords

_PRODUCT_HASHER = passwords._hasher
_CHEAP_HASHER = PasswordHasher.from_parameters(profiles.CHEAPEST)


def use_cheap_hashes() -> None:
    """Make this process hash passwords ten thousand times as fast as the product."""
    _use_hasher(_CHEAP_HASHER)


@contextmanager
def thorough_hashes() -> Iterator[None]:
    """Until the block ends, hash passwords as slowly as the product does."""
    earlier_hasher = passwords._hasher
    _use_hasher(_PRODUCT_HASHER)
    try:
        yield
    finally:
        _use_hasher(earlier_hasher)


def _use_hasher(hasher: PasswordHasher) -> None:
    passwords._hasher = hasher
    passwords._unused_hash.cache_clear()
