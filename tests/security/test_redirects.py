# ruff: noqa: RUF001 - letters that look alike are what is tried here
"""A payer is led back to an address of an allowed origin, or nowhere, however it is spelt."""

import json

import httpx2
import pytest

from services.credits import return_urls
from tests.support.http.replies import problem

ALLOWED = ("https://shop.example", "https://shop.example:8443", "http://intra.example")
LOOPBACK = (*ALLOWED, "loopback")
GOOD = "shop.example"
EVIL = "evil.example"
CONTROLS = [chr(code) for code in (*range(0x21), 0x7F, 0x85, 0xA0, 0x2028, 0x2029, 0xFEFF)]

# Whose part before the path is another's, or none.
_HOSTS = [
    *(EVIL, f"{GOOD}:80", f"{GOOD}:8444", f"{GOOD}.{EVIL}", f"{EVIL}.{GOOD}", f"x{GOOD}"),
    *(f"{GOOD}x", f"{GOOD}.", f"{GOOD}..", f".{GOOD}", "shop.exampl", "shop", "shopXexample"),
    "intra.example",
    # Users, and what may be read as one.
    *(f"{GOOD}@{EVIL}", f"{EVIL}@{GOOD}", f"@{GOOD}", f":@{GOOD}", f"a:b@{GOOD}"),
    *(f"{GOOD}:443@{EVIL}", f"{GOOD}%40{EVIL}", f"{GOOD}#@{EVIL}", f"{GOOD}?@{EVIL}"),
    *(f"{GOOD};@{EVIL}", f"{GOOD}\\@{EVIL}", f"{EVIL}\\@{GOOD}", f"{EVIL}#@{GOOD}"),
    *(f"{EVIL}?@{GOOD}", f"{EVIL}/@{GOOD}", f"{EVIL}//{GOOD}", f"{EVIL},{GOOD}", f"{GOOD},{EVIL}"),
    *(f"{GOOD} {EVIL}", f"{GOOD}&{EVIL}", f"{GOOD}={EVIL}", f"({GOOD})", f"{GOOD}%2f@{EVIL}"),
    *(f"{GOOD}\\{EVIL}", f"{GOOD}\\.{EVIL}"),
    # Escapes.
    *("%73hop.example", "shop%2eexample", f"{GOOD}%00.{EVIL}", f"{GOOD}%2f{EVIL}"),
    f"{GOOD}%23.{EVIL}",
    # Ports.
    *(f"{GOOD}:{port}" for port in ("", "0443", "+443", "443.0", "65536", "99999999", "-1")),
    *(f"{GOOD}:{port}" for port in ("4 43", "443:443", "८४४३", "evil")),
    # Letters that look alike, or are folded to others.
    *("ѕhop.example", "shop。example", "shop．example", "shop.exampłe", "ｓｈｏｐ.example"),
    *("ſhop.example", "shop.example\u3002evil.example", f"{GOOD}\u2044{EVIL}", f"{GOOD}\u00ad"),
    *(f"{GOOD}\uff0f{EVIL}", "xn--hop-9ka.example", "[shop.example]", "[::ffff:1.2.3.4]"),
    *(f"{GOOD}{mark}" for mark in CONTROLS),
]
# What is not absolute, or not http.
_SCHEMES = [
    *("http://", "", "//", "///", "https:/", "https:", "https:///", "https:////", "https//"),
    *("https;//", "://", "ftp://", "ws://", "view-source:https://", "httpsx://"),
    *("https://https://", "http+unix://", "https:\\\\", "https%3a%2f%2f"),
    *(f"{mark}https://" for mark in CONTROLS),
    *(f"ht{mark}tps://" for mark in CONTROLS),
]
_PATHS = [
    # Backslashes, doubled slashes, escapes, and what headers and pages could trip over.
    *(f"\\{EVIL}", f"/{EVIL}", f"//{EVIL}", f"a//{EVIL}", f"%5c{EVIL}", f"%5C%5C{EVIL}"),
    *("%", "%0", "%zz", "%00", f"%0d%0aLocation:%20https://{EVIL}", "?x=%0d%0aSet-Cookie:x"),
    *("#%0a", "%7f", "ü", "\U0001f600"),
    *(f"a{mark}b" for mark in ' "<>^`{|}'),
    *CONTROLS,
    # Its own answer.
    *("?status=paid", "?order_id=1", "?a=1&STATUS=paid", "?a=1;status=paid", "?%73tatus=paid"),
    *("?status", "?+status=paid"),
    "a" * 2048,
]
HOSTILE = [
    *(f"{scheme}{EVIL}/" for scheme in ("http://", "HTTPS://", "//", "https:\\\\", "https:/\\")),
    *(f"\\\\{EVIL}/", f"/\\{EVIL}/", f"http://{GOOD}:443/", GOOD, f"{GOOD}/done"),
    *("", "/", "/done", "done", "?x", "#x", "https://", "https:", "https:///"),
    *(f"file://{GOOD}/etc/passwd", f"javascript://{GOOD}/%0aalert(1)", "javascript:alert(1)"),
    *("data:text/html,<script>alert(1)</script>", f"blob:https://{GOOD}/x"),
    *(f"https://{host}/" for host in _HOSTS),
    *(f"{scheme}{GOOD}/" for scheme in _SCHEMES),
    *(f"https://{GOOD}/{path}" for path in _PATHS),
]

HOSTILE_LOOPBACK = [
    *("http://localhost.evil.example/", "http://127.0.0.1.evil.example/", "http://127.1/"),
    *("http://localhost@evil.example/", "http://evil.example#localhost", "http://127.0.0.2/"),
    *("http://127.0.0.1./", "http://0.0.0.0/", "http://0/", "http://0177.0.0.1/"),
    *("http://0x7f.0.0.1/", "http://0x7f000001/", "http://2130706433/", "http://[::]/"),
    *("http://[::ffff:127.0.0.1]/", "http://[0:0:0:0:0:0:0:1]/", "http://[::1%25lo]/"),
    *("http://::1/", "http://localhost:/", "http://localhost./", "http://localhost:0/"),
    *("http://169.254.169.254/", "http://①②⑦.0.0.1/"),
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
