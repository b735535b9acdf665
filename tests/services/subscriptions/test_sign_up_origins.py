"""Tests which values of a sign-up's origin are stored, and which are dropped."""

import pytest

from services.subscriptions.sign_up_origins import (
    MAX_LANDING_CHARACTERS,
    MAX_REFERRER_CHARACTERS,
    MAX_UTM_CHARACTERS,
    clean_origin,
    clean_value,
    read_referring_page,
)

LONG_HOST = f"{'w' * 60}.{'x' * 60}.{'y' * 60}.{'z' * 60}.example"


@pytest.mark.parametrize(
    ("name", "value", "cleaned"),
    [
        ("utm_source", " Spring\u202e Fair\n", "spring fair"),
        ("utm_source", "\u200bfair\ufeff", "fair"),
        ("utm_campaign", "Cafe\u0301", "caf\u00e9"),
        ("utm_term", "\u0130", "i\u0307"),
        ("utm_medium", "x" * MAX_UTM_CHARACTERS, "x" * MAX_UTM_CHARACTERS),
        ("utm_content", "a" * 31, "a" * 31),
        ("referrer", "WWW.Example.com", "www.example.com"),
        ("referrer", "https://news.example.com:8443/item?id=1#top", "news.example.com"),
        ("referrer", "https://m\u00fcnchen.example/", "xn--mnchen-3ya.example"),
        ("referrer", LONG_HOST[:MAX_REFERRER_CHARACTERS], LONG_HOST[:MAX_REFERRER_CHARACTERS]),
        # Pressroom stores only the host of a referrer, so it accepts referrers with a long or
        # personal path.
        ("referrer", "https://blog.example.com/@ada/tea", "blog.example.com"),
        ("referrer", f"https://www.example.com/{'f' * 32}?to=ada@example.com", "www.example.com"),
        ("referrer", f"https://www.example.com/?id={'x' * 5_000}", "www.example.com"),
        ("referrer", f"https://www.example.com/{'x' * 5_000}", "www.example.com"),
        ("referrer", "https://my_shop.example.com./", "my_shop.example.com"),
        ("referrer", "android-app://com.example.reader/", "com.example.reader"),
        ("referrer", "http://192.0.2.1:8080/", "192.0.2.1"),
        ("landing", "/Tea/Join?utm_source=x#form", "/Tea/Join"),
        ("landing", "https://www.example.com/tea?to=ada@example.com", "/tea"),
        ("landing", f"/tea?id={'f' * 5_000}", "/tea"),
        ("landing", "/100%", "/100%"),
        ("landing", "https://www.example.com/tea", "/tea"),
        ("landing", "/" + "x" * 299, "/" + "x" * (MAX_LANDING_CHARACTERS - 1)),
    ],
)
def test_valid_values_of_an_origin_are_normalised(name: str, value: str, cleaned: str) -> None:
    assert clean_value(name, value) == cleaned


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("utm_source", "ada@example.com"),
        ("utm_source", "ada%40example.com"),
        ("utm_source", "ada\uff20example.com"),
        ("utm_source", "ada%252540example.com"),
        ("utm_source", "ada%25EF%25BC%25A0example.com"),
        ("utm_source", f"%{'25' * 10}40"),
        ("utm_content", "id-" + "0123456789abcdefABCDEF0123456789"),
        ("landing", "/u/ada%40example.com"),
        ("utm_content", "0123456789abcdef\u200b0123456789\u00adabcdef"),
        ("utm_content", "%61" * 32),
        ("landing", "/u/" + "f" * 32),
        ("landing", "/u/ada%2540example.com?tea"),
        ("utm_source", "x" * (MAX_UTM_CHARACTERS + 1)),
        ("utm_source", " \u200f\t"),
        ("utm_source", "\u200b\u3164\u00ad"),
        ("utm_source", "\u0345"),
        ("utm_source", None),
        ("utm_source", 5),
        ("utm_source", ["fair"]),
        ("utm_source", "x" * 100_000),
        ("utm_source", "\ud800"),
        ("referrer", "https://ada:secret@example.com/"),
        ("referrer", "ada@example.com"),
        ("referrer", "about:blank"),
        ("referrer", "mailto:ada"),
        ("referrer", "javascript:alert(1)"),
        ("referrer", "/tea/join"),
        ("referrer", "two words"),
        ("referrer", "http://[::1]/"),
        ("referrer", "http://[broken"),
        ("referrer", "//"),
        ("referrer", "x" * (MAX_REFERRER_CHARACTERS + 1)),
        ("landing", "tea/join"),
        ("landing", "http://[broken/tea"),
        ("landing", "/" + "x" * MAX_LANDING_CHARACTERS),
    ],
)
def test_invalid_and_personal_values_of_an_origin_are_dropped(name: str, value: object) -> None:
    assert clean_value(name, value) is None


def test_invalid_value_of_an_origin_drops_no_other_value() -> None:
    values = {"utm_source": "Fair", "utm_medium": "a@b.example", "email": "a@b.example"}
    assert clean_origin(values) == {"utm_source": "fair"}


def test_referring_page_gives_host_and_path_unless_the_browser_hides_the_path() -> None:
    page = "https://www.example.com/tea/join?ad=1"
    assert read_referring_page(page) == {"referrer": "www.example.com", "landing": "/tea/join"}
    assert read_referring_page("https://www.example.com/") == {"referrer": "www.example.com"}
    assert read_referring_page("https://blog.example.com/@ada") == {"referrer": "blog.example.com"}
    assert read_referring_page("about:blank") == {}
    assert read_referring_page(None) == {}
