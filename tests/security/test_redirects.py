"""Tests that payers are redirected only to allowed origins, however the URL is spelled."""

import json

import httpx2
import pytest

from services.credits import return_urls
from tests.support.http.replies import problem
from tests.support.security.return_urls import HOSTILE_RETURN_URLS, SHOP

ALLOWED_ORIGINS = ("https://shop.example", "https://shop.example:8443", "http://intra.example")
ALLOWED_WITH_LOOPBACK = (*ALLOWED_ORIGINS, "loopback")
HOSTILE_LOOPBACK_URLS = [
    *("http://localhost.evil.example/", "http://127.0.0.1.evil.example/", "http://127.1/"),
    *("http://localhost@evil.example/", "http://evil.example#localhost", "http://127.0.0.2/"),
    *("http://127.0.0.1./", "http://0.0.0.0/", "http://0/", "http://0177.0.0.1/"),
    *("http://0x7f.0.0.1/", "http://0x7f000001/", "http://2130706433/", "http://[::]/"),
    *("http://[::ffff:127.0.0.1]/", "http://[0:0:0:0:0:0:0:1]/", "http://[::1%25lo]/"),
    *("http://::1/", "http://localhost:/", "http://localhost./", "http://localhost:0/"),
    *("http://169.254.169.254/", "http://①②⑦.0.0.1/"),
]

ALLOWED_URLS = [
    f"https://{SHOP}",
    f"https://{SHOP}/",
    "HTTPS://Shop.Example:443/Done",
    f"https://{SHOP}:8443/done?a=1&b=%20#part",
    f"https://{SHOP}/done#/app/route?x=1",
    f"https://{SHOP}/a/../b/?next=/c",
    f"https://{SHOP}/?statuses=1&my_order_id=2",
    "http://intra.example:80/~user/(x)",
]


def is_allowed(url: str, allowed_origins: tuple[str, ...]) -> bool:
    try:
        return_urls.check_return_url(url, allowed_origins)
    except Exception as error:  # noqa: BLE001 - the next line checks the error's code
        assert getattr(error, "code", None) == "topup.redirect_not_allowed"  # noqa: PT017
        return False
    return True


def test_hostile_return_urls_are_rejected() -> None:
    assert len(set(HOSTILE_RETURN_URLS)) + len(set(HOSTILE_LOOPBACK_URLS)) >= 200
    assert [url for url in HOSTILE_RETURN_URLS if is_allowed(url, ALLOWED_ORIGINS)] == []
    assert [url for url in HOSTILE_RETURN_URLS if is_allowed(url, ALLOWED_WITH_LOOPBACK)] == []
    assert [url for url in HOSTILE_LOOPBACK_URLS if is_allowed(url, ALLOWED_WITH_LOOPBACK)] == []


def test_return_urls_of_allowed_origins_are_accepted() -> None:
    assert [url for url in ALLOWED_URLS if not is_allowed(url, ALLOWED_ORIGINS)] == []
    for url in ("http://localhost:3000/x", "https://127.0.0.1/", "http://[::1]:8080/?a=b"):
        assert is_allowed(url, ALLOWED_WITH_LOOPBACK)
        assert not is_allowed(url, ALLOWED_ORIGINS)


def test_no_return_url_is_accepted_without_allowed_origins() -> None:
    assert [url for url in (*ALLOWED_URLS, "http://localhost/") if is_allowed(url, ())] == []


@pytest.mark.parametrize(
    ("url", "result_url"),
    [
        ("https://shop.example", "https://shop.example?order_id=7&status=paid"),
        ("https://shop.example/a?b=c", "https://shop.example/a?b=c&order_id=7&status=paid"),
        ("https://shop.example/a#b?c", "https://shop.example/a?order_id=7&status=paid#b?c"),
        ("https://shop.example/?", "https://shop.example/?&order_id=7&status=paid"),
    ],
)
def test_payment_result_is_added_to_the_query_of_the_return_url(url: str, result_url: str) -> None:
    assert return_urls.add_result(url, 7, "paid") == result_url
    assert httpx2.URL(result_url).host == "shop.example"
    assert dict(httpx2.URL(result_url).params)["order_id"] == "7"


def test_topup_rejects_hostile_return_urls_and_names_the_field(stranger: httpx2.Client) -> None:
    for url in [*HOSTILE_RETURN_URLS[:60], *HOSTILE_LOOPBACK_URLS]:
        reply = stranger.post(
            "/auxilia/credits/topup",
            content=json.dumps({"amount": 5, "redirect_url": url}),
            headers={"Content-Type": "application/json"},
        )
        error = problem(reply, 422, "topup.redirect_not_allowed")
        assert error["errors"][0]["field"] == "body.redirect_url"
        assert "location" not in reply.headers
