"""A payer is led back to an address of an allowed origin, or nowhere, however it is spelt."""

import json

import httpx2
import pytest

from services.credits import return_urls
from tests.support.http.replies import problem
from tests.support.security.redirect_urls import GOOD, HOSTILE, HOSTILE_LOOPBACK

ALLOWED = ("https://shop.example", "https://shop.example:8443", "http://intra.example")
LOOPBACK = (*ALLOWED, "loopback")
WELCOME = [
    f"https://{GOOD}",
    f"https://{GOOD}/",
    "HTTPS://Shop.Example:443/Done",
    f"https://{GOOD}:8443/done?a=1&b=%20#part",
    f"https://{GOOD}/done#/app/route?x=1",
    f"https://{GOOD}/a/../b/?next=/c",
    f"https://{GOOD}/?statuses=1&my_order_id=2",
    "http://intra.example:80/~user/(x)",
]


def allows(url: str, allowed: tuple[str, ...]) -> bool:
    try:
        return_urls.check_return_url(url, allowed)
    except Exception as error:  # noqa: BLE001 - its code is what is looked at
        assert getattr(error, "code", None) == "topup.redirect_not_allowed"  # noqa: PT017
        return False
    return True


def test_no_hostile_form_passes() -> None:
    assert len(set(HOSTILE)) + len(set(HOSTILE_LOOPBACK)) >= 200
    assert [url for url in HOSTILE if allows(url, ALLOWED)] == []
    assert [url for url in HOSTILE if allows(url, LOOPBACK)] == []
    assert [url for url in HOSTILE_LOOPBACK if allows(url, LOOPBACK)] == []


def test_addresses_of_allowed_origins_pass() -> None:
    assert [url for url in WELCOME if not allows(url, ALLOWED)] == []
    for url in ("http://localhost:3000/x", "https://127.0.0.1/", "http://[::1]:8080/?a=b"):
        assert allows(url, LOOPBACK)
        assert not allows(url, ALLOWED)


def test_where_none_is_allowed_none_passes() -> None:
    assert [url for url in (*WELCOME, "http://localhost/") if allows(url, ())] == []


@pytest.mark.parametrize(
    ("url", "led_to"),
    [
        ("https://shop.example", "https://shop.example?order_id=7&status=paid"),
        ("https://shop.example/a?b=c", "https://shop.example/a?b=c&order_id=7&status=paid"),
        ("https://shop.example/a#b?c", "https://shop.example/a?order_id=7&status=paid#b?c"),
        ("https://shop.example/?", "https://shop.example/?&order_id=7&status=paid"),
    ],
)
def test_the_result_goes_into_the_query(url: str, led_to: str) -> None:
    assert return_urls.add_result(url, 7, "paid") == led_to
    assert httpx2.URL(led_to).host == "shop.example"
    assert dict(httpx2.URL(led_to).params)["order_id"] == "7"


def test_the_route_refuses_every_hostile_form_with_a_field(stranger: httpx2.Client) -> None:
    for url in [*HOSTILE[:60], *HOSTILE_LOOPBACK]:
        reply = stranger.post(
            "/auxilia/credits/topup",
            content=json.dumps({"amount": 5, "redirect_url": url}),
            headers={"Content-Type": "application/json"},
        )
        error = problem(reply, 422, "topup.redirect_not_allowed")
        assert error["errors"][0]["field"] == "body.redirect_url"
        assert "location" not in reply.headers
