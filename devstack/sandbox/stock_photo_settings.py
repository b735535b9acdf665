"""The stock photos' part of the sandbox, as the settings name it."""

from collections.abc import Mapping

UNSPLASH_PREFIX = "/unsplash"
OPENVERSE_PREFIX = "/openverse"
# Known to everybody: the sandbox listens on the loopback address and guards nothing.
ACCESS_KEY = "sandbox-unsplash-access-key"


def sandbox_settings(sandbox_url: str, own: Mapping[str, str]) -> dict[str, str]:
    """Settings that send requests for stock photos to the sandbox.

    A provider of which the user's `own` settings name anything is left to them altogether, so that
    a key never goes to a service that it isn't for. Which of the two is asked is the sandbox's
    Unsplash, unless they name one, or have an Unsplash of their own.
    """
    unsplash = {
        "PRESSROOM_UNSPLASH_BASE_URL": f"{sandbox_url}{UNSPLASH_PREFIX}",
        "PRESSROOM_UNSPLASH_ACCESS_KEY": ACCESS_KEY,
    }
    openverse = {"PRESSROOM_OPENVERSE_BASE_URL": f"{sandbox_url}{OPENVERSE_PREFIX}"}
    chosen = {"PRESSROOM_STOCK_PHOTO_PROVIDER": "unsplash"}
    for provider in (unsplash, openverse):
        if own.keys().isdisjoint(provider):
            chosen |= provider
    return chosen
