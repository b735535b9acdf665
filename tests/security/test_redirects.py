# ruff: noqa: RUF001 - letters that look alike are what is tried here
"""A payer is led back to an address of an allowed origin, or nowhere, however it is spelt."""

import json

import httpx2
import pytest

from services.credits import orders
from tests.contract.replies import problem
from tests.stack import Stack

ALLOWED = ("https://shop.example", "https://shop.example:8443", "http://intra.example")
LOOPBACK = (*ALLOWED, "loopback")
GOOD = "shop.example"
EVIL = "evil.example"
CONTROLS = [chr(code) for code in (*range(0x21), 0x7F, 0x85, 0xA0, 0x2028, 0x2029, 0xFEFF)]

HOSTILE = [
    # Other origins.
    *(f"{scheme}://{EVIL}/" for scheme in ("http", "https", "HTTPS")),
    f"http://{GOOD}/",
    f"https://{GOOD}:80/",
    f"https://{GOOD}:8444/",
    f"https://{GOOD}.{EVIL}/",
    f"https://{EVIL}.{GOOD}/",
    f"https://x{GOOD}/",
    f"https://{GOOD}x/",
    f"https://{GOOD}./",
    f"https://{GOOD}../",
    f"https://.{GOOD}/",
    "https://shop.exampl/",
    "https://shop/",
    "https://shopXexample/",
    "https://intra.example/",
    f"http://{GOOD}:443/",
    # Not absolute, not http.
    "",
    "/",
    "/done",
    "done",
    "?x",
    "#x",
    GOOD,
    f"{GOOD}/done",
    f"//{GOOD}/",
    f"//{EVIL}/",
    f"///{GOOD}/",
    f"https:/{GOOD}/",
    f"https:{GOOD}/",
    f"https:///{GOOD}/",
    f"https:////{GOOD}/",
    f"https//{GOOD}/",
    f"https;//{GOOD}/",
    f"://{GOOD}/",
    f"ftp://{GOOD}/",
    f"ws://{GOOD}/",
    f"file://{GOOD}/etc/passwd",
    f"javascript://{GOOD}/%0aalert(1)",
    "javascript:alert(1)",
    "data:text/html,<script>alert(1)</script>",
    "blob:https://shop.example/x",
    f"view-source:https://{GOOD}/",
    f"httpsx://{GOOD}/",
    f"https://https://{GOOD}/",
    f"http+unix://{GOOD}/",
    "https://",
    "https:",
    "https:///",
    # Users, and what may be read as one.
    f"https://{GOOD}@{EVIL}/",
    f"https://{EVIL}@{GOOD}/",
    f"https://@{GOOD}/",
    f"https://:@{GOOD}/",
    f"https://a:b@{GOOD}/",
    f"https://{GOOD}:443@{EVIL}/",
    f"https://{GOOD}%40{EVIL}/",
    f"https://{GOOD}#@{EVIL}/",
    f"https://{GOOD}?@{EVIL}/",
    f"https://{GOOD};@{EVIL}/",
    f"https://{GOOD}\\@{EVIL}/",
    f"https://{EVIL}\\@{GOOD}/",
    f"https://{EVIL}#@{GOOD}/",
    f"https://{EVIL}?@{GOOD}/",
    f"https://{EVIL}/@{GOOD}/",
    f"https://{EVIL}//{GOOD}/",
    f"https://{EVIL},{GOOD}/",
    f"https://{GOOD},{EVIL}/",
    f"https://{GOOD} {EVIL}/",
    f"https://{GOOD}&{EVIL}/",
    f"https://{GOOD}={EVIL}/",
    f"https://({GOOD})/",
    f"https://{GOOD}%2f@{EVIL}/",
    # Backslashes and doubled slashes.
    f"https:\\\\{GOOD}/",
    f"https:\\\\{EVIL}/",
    f"https:/\\{EVIL}/",
    f"\\\\{EVIL}/",
    f"/\\{EVIL}/",
    f"https://{GOOD}\\{EVIL}/",
    f"https://{GOOD}\\.{EVIL}/",
    f"https://{GOOD}/\\{EVIL}",
    f"https://{GOOD}//{EVIL}",
    f"https://{GOOD}///{EVIL}",
    f"https://{GOOD}/a//{EVIL}",
    f"https://{GOOD}/%5c{EVIL}",
    f"https://{GOOD}/%5C%5C{EVIL}",
    # Escapes.
    "https://%73hop.example/",
    "https://shop%2eexample/",
    f"https://{GOOD}%00.{EVIL}/",
    f"https://{GOOD}%2f{EVIL}/",
    f"https://{GOOD}%23.{EVIL}/",
    f"https://{GOOD}/%",
    f"https://{GOOD}/%0",
    f"https://{GOOD}/%zz",
    f"https://{GOOD}/%00",
    f"https://{GOOD}/%0d%0aLocation:%20https://{EVIL}",
    f"https://{GOOD}/?x=%0d%0aSet-Cookie:x",
    f"https://{GOOD}/#%0a",
    f"https://{GOOD}/%7f",
    f"https%3a%2f%2f{GOOD}/",
    # Ports.
    f"https://{GOOD}:/",
    f"https://{GOOD}:0443/",
    f"https://{GOOD}:+443/",
    f"https://{GOOD}:443.0/",
    f"https://{GOOD}:65536/",
    f"https://{GOOD}:99999999/",
    f"https://{GOOD}:-1/",
    f"https://{GOOD}:4 43/",
    f"https://{GOOD}:443:443/",
    f"https://{GOOD}:८४४३/",
    f"https://{GOOD}:evil/",
    # Letters that look alike, or are folded to others.
    "https://ѕhop.example/",
    "https://shop。example/",
    "https://shop．example/",
    "https://shop.exampłe/",
    "https://ｓｈｏｐ.example/",
    "https://ſhop.example/",
    "https://shop.example\u3002evil.example/",
    f"https://{GOOD}\u2044{EVIL}/",
    f"https://{GOOD}\uff0f{EVIL}/",
    f"https://{GOOD}\u00ad/",
    f"https://{GOOD}/ü",
    f"https://{GOOD}/\U0001f600",
    "https://xn--hop-9ka.example/",
    "https://[shop.example]/",
    "https://[::ffff:1.2.3.4]/",
    # Marks that headers and pages could trip over.
    *(f"https://{GOOD}/a{mark}b" for mark in ' "<>^`{|}'),
    # Its own answer.
    f"https://{GOOD}/?status=paid",
    f"https://{GOOD}/?order_id=1",
    f"https://{GOOD}/?a=1&STATUS=paid",
    f"https://{GOOD}/?a=1;status=paid",
    f"https://{GOOD}/?%73tatus=paid",
    f"https://{GOOD}/?status",
    f"https://{GOOD}/?+status=paid",
    # Too long.
    f"https://{GOOD}/{'a' * 2048}",
    # Control characters and invisible ones: before, within, after.
    *(f"{mark}https://{GOOD}/" for mark in CONTROLS),
    *(f"https://{GOOD}{mark}/" for mark in CONTROLS),
    *(f"https://{GOOD}/{mark}" for mark in CONTROLS),
    *(f"ht{mark}tps://{GOOD}/" for mark in CONTROLS),
]

HOSTILE_LOOPBACK = [
    "http://localhost.evil.example/",
    "http://127.0.0.1.evil.example/",
    "http://localhost@evil.example/",
    "http://evil.example#localhost",
    "http://127.1/",
    "http://127.0.0.2/",
    "http://127.0.0.1./",
    "http://0.0.0.0/",
    "http://0/",
    "http://0177.0.0.1/",
    "http://0x7f.0.0.1/",
    "http://0x7f000001/",
    "http://2130706433/",
    "http://[::]/",
    "http://[::ffff:127.0.0.1]/",
    "http://[0:0:0:0:0:0:0:1]/",
    "http://[::1%25lo]/",
    "http://::1/",
    "http://localhost:/",
    "http://localhost./",
    "http://localhost:0/",
    "http://169.254.169.254/",
    "http://①②⑦.0.0.1/",
]

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
        orders.check(url, allowed)
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
    assert orders.add_result(url, 7, "paid") == led_to
    assert httpx2.URL(led_to).host == "shop.example"
    assert dict(httpx2.URL(led_to).params)["order_id"] == "7"


def test_the_route_refuses_every_hostile_form_with_a_field(
    stack: Stack, stranger: httpx2.Client
) -> None:
    for url in [*HOSTILE[:60], *HOSTILE_LOOPBACK]:
        reply = stranger.post(
            "/auxilia/credits/topup",
            content=json.dumps({"amount": 5, "redirect_url": url}),
            headers={"Content-Type": "application/json"},
        )
        error = problem(reply, 422, "topup.redirect_not_allowed")
        assert error["errors"][0]["field"] == "body.redirect_url"
        assert "location" not in reply.headers
