"""A URL is read only where no program could read another origin in it."""

import pytest

from core.settings import origins
from tests.security.test_redirects import GOOD, HOSTILE, WELCOME

ALLOWED = ("https://shop.example", "https://shop.example:8443", "http://intra.example")


@pytest.mark.parametrize("url", WELCOME)
def test_plain_urls_have_an_origin(url: str) -> None:
    found = origins.read_url(url)
    assert found is not None
    assert found.is_of(ALLOWED)
    assert not found.is_of(())


def test_no_hostile_url_is_of_an_allowed_origin() -> None:
    # Topups refuse these for the names in their query alone.
    hostile = [url for url in HOSTILE if not url.startswith(f"https://{GOOD}/?")]
    read = [(url, origins.read_url(url)) for url in hostile]
    assert [url for url, found in read if found and found.is_of(ALLOWED)] == []


def test_longest_url_has_2048_characters() -> None:
    longest = "https://shop.example/".ljust(origins.MAX_URL_CHARACTERS, "a")
    assert origins.read_url(longest) is not None
    assert origins.read_url(f"{longest}a") is None
