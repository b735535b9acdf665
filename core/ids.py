import secrets
from array import array

# Ids stay below 2**53, so that a JavaScript number holds every one of them exactly.
MAX_ID = 2**53 - 1
MAX_UINT64 = 2**64 - 1

_BASE36 = "0123456789abcdefghijklmnopqrstuvwxyz"


def random_id() -> int:
    """An id between 1 and ``MAX_ID`` that says nothing about age or number."""
    return secrets.randbelow(MAX_ID) + 1


def random_hash_id(length: int = 12) -> str:
    """A short public identifier of ``[a-z0-9]``: 62 random bits at the default length."""
    return "".join(secrets.choice(_BASE36) for _ in range(length))


def random_ids(count: int) -> list[int]:
    """Many of ``random_id`` at once, at a fraction of its cost."""
    numbers = array("Q", secrets.token_bytes(8 * count))
    return [number >> 11 or 1 for number in numbers]
