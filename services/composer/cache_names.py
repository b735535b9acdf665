"""What the composer keeps for a while, under names that tell nothing of what was asked."""

from core.keyring import Keyring

# Keyed, so that a reader of Redis can't find out whether a text they guess was asked about.
_PURPOSE = "composer-cache"


def cache_key(keyring: Keyring, *parts: str) -> str:
    """A name for what these parts decide. It says nothing of who asks: it is the same for all."""
    message = bytearray()
    for part in parts:
        text = part.encode("utf-8", "surrogatepass")
        # The length before each part keeps ("ab", "c") apart from ("a", "bc").
        message += len(text).to_bytes(8, "big") + text
    return keyring.signer(_PURPOSE).digest(bytes(message)).hex()
