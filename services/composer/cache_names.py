"""Keys of the composer's cache, which tell nothing of the text that they stand for."""

from core.keyring import Keyring

# Keyed, so that a reader of Redis can't check whether a post with a guessed text was sent.
_PURPOSE = "composer-cache"


def cache_key(keyring: Keyring, *parts: str) -> str:
    """The cache key of a result that these parts alone decide; all callers share the entry."""
    message = bytearray()
    for part in parts:
        text = part.encode("utf-8", "surrogatepass")
        # The length before each part keeps ("ab", "c") apart from ("a", "bc").
        message += len(text).to_bytes(8, "big") + text
    return keyring.signer(_PURPOSE).digest(bytes(message)).hex()
