from datetime import UTC, datetime, timedelta

import pytest

from core.keyring import Key, Keyring
from core.signed_urls import FILE_URLS, SignedUrls
from services.attachments.records import MEDIA_URLS

KEYRING = Keyring([Key("k1", b"k" * 32)])
NOW = datetime(2026, 7, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("urls", "name", "path", "purpose"),
    [
        (FILE_URLS, "/exports/7/file.csv.gz", "/exports/7/file.csv.gz", "file-link"),
        (MEDIA_URLS, "abc123def456.webp", "/media/abc123def456.webp", "media-link"),
    ],
)
def test_signed_url_keeps_the_format_of_previously_issued_urls(
    urls: SignedUrls, name: str, path: str, purpose: str
) -> None:
    url, expires_at = urls.create(
        KEYRING, name, base="https://a.example", lifetime=timedelta(seconds=90), now=NOW
    )
    expires = int(NOW.timestamp()) + 90
    signature = KEYRING.signer(purpose).sign(f"{name}\n{expires}".encode())
    assert url == f"https://a.example{path}?expires={expires}&signature={signature}"
    assert expires_at == NOW + timedelta(seconds=90)


def test_signed_url_opens_only_its_own_file_and_kind_until_it_expires() -> None:
    name = "abc123def456.webp"
    url, expires_at = MEDIA_URLS.create(
        KEYRING, name, base="", lifetime=timedelta(seconds=90), now=NOW
    )
    expires, signature = (each.partition("=")[2] for each in url.partition("?")[2].split("&"))

    def opens(urls: SignedUrls, name: str, now: datetime) -> bool:
        return urls.opens(KEYRING, name, expires=expires, signature=signature, now=now)

    assert opens(MEDIA_URLS, name, NOW)
    assert not opens(MEDIA_URLS, name, expires_at)
    assert not opens(MEDIA_URLS, "other.webp", NOW)
    assert not opens(FILE_URLS, name, NOW)
    assert not MEDIA_URLS.opens(KEYRING, name, expires="1e9", signature=signature, now=NOW)
