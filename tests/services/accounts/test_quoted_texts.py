"""Tests that mails to strangers show list titles and addresses without links."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.accounts.quoted_texts import MAX_SHOWN_CHARACTERS, obfuscate_address, quote_text

# Texts that mail programs turn into links.
LINK_PATTERN = re.compile(
    r"https?:|www\.|@|[a-z0-9]\.(?:com|net|de|ai|id)\b|\d{7}|\d[ -]\d{3}[ -]\d{3}[ -]\d{4}",
    re.IGNORECASE,
)


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        ("The Daily Demo", "“The Daily Demo”"),
        ("Tea & <Toast>", "“Tea & <Toast>”"),
        ("Vol. 2.0, 24/7 news from the U.S.", "“Vol. 2.0, 24/7 news from the U.S.”"),
        ("Zeitung für Köln. Täglich", "“Zeitung für Köln. Täglich”"),
        ("日本のニュース", "“日本のニュース”"),
        ("Locked! Verify at https://evil.example/login now", "“Locked! Verify at … now”"),
        ("write to help@evil.example", "“write to …”"),
        ("see www.evil and evil.example.", "“see … and …”"),
        ("\uff45vil\uff0e\uff45xample or evil\u3002example", "“… or …”"),
        ("evil\u200b.\u200bexample", "“…”"),
        ("(evil.example)", "“…”"),
        ("пример.рф", "“…”"),
        ("Node.js Weekly", "“Node.js Weekly”"),
        ("evil.xn--p1ai", "“…”"),
        ("//evil \\\\evil 192.168.0.1/x", "“…”"),
        ("Call +1 (800) 555-0199 at once", "“Call … at once”"),
        ("left \u202egnihton\u202c right", "“left gnihton right”"),
        ('said ”enough“ "now"', "“said 'enough' 'now'”"),
        ("a\tb\u2028c\u00a0d", "“a b c d”"),
        ("", "“…”"),
        ("\u200b", "“…”"),
        ("word " * 40, "“" + "word " * 11 + "word…”"),
    ],
)
def test_list_title_in_mails_is_shortened_quoted_and_stripped_of_links(
    title: str, expected: str
) -> None:
    assert quote_text(title) == expected


@given(st.text(max_size=200))
def test_quoted_title_contains_no_link_or_unprintable_character_for_any_text(title: str) -> None:
    quoted = quote_text(title)
    inner = quoted[1:-1]
    assert (quoted[0], quoted[-1]) == ("“", "”")
    assert 1 <= len(inner) <= MAX_SHOWN_CHARACTERS
    assert inner.isprintable()
    assert not set(inner) & set('“”„"«»')
    assert not LINK_PATTERN.search(inner.encode("ascii", "ignore").decode())


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("ann.writer@example.com", "a…@example.com"),
        ("o@news.example.co.uk", "o…@news.example.co.uk"),
    ],
)
def test_owner_address_in_mails_to_strangers_is_readable_but_no_link(
    address: str, expected: str
) -> None:
    obfuscated = obfuscate_address(address)
    assert obfuscated.replace("\u200c", "") == expected
    # Mail programs turn two words into a link if only a dot or an @ separates them.
    assert not re.search(r"[\w…][@.]|[@.]\w", obfuscated)


def test_obfuscated_address_with_long_domain_is_cut_to_the_title_length() -> None:
    obfuscated = obfuscate_address("o@" + "your-account-is-locked." * 8 + "example")
    assert len(obfuscated.replace("\u200c", "")) == MAX_SHOWN_CHARACTERS
