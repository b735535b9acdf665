"""Password hashes that cost nothing, for tests alone: the product has no setting for it."""

from collections.abc import Iterator
from contextlib import contextmanager

from argon2 import PasswordHasher, profiles

from services.accounts import passwords

_THOROUGH = passwords._hasher
_CHEAP = PasswordHasher.from_parameters(profiles.CHEAPEST)


def use_cheap_hashes() -> None:
    """Hash passwords in this process in a ten thousandth of the product's time."""
    _use(_CHEAP)


@contextmanager
def thorough_hashes() -> Iterator[None]:
    """Hash passwords as the product does while the block runs."""
    before = passwords._hasher
    _use(_THOROUGH)
    try:
        yield
    finally:
        _use(before)


def _use(hasher: PasswordHasher) -> None:
    passwords._hasher = hasher
    passwords._unused_hash.cache_clear()
