from random import Random

import pytest
from email_validator import SPECIAL_USE_DOMAIN_NAMES, EmailNotValidError, validate_email
from hypothesis import example, given, settings
from hypothesis import strategies as st

from core.languages.shown_lines import has_invisible, strip_invisible
from services.accounts import email_addresses
from services.accounts.email_addresses import InvalidAddress
from tests.support.sizes import sized

CORPUS_SIZE = sized(105_000, 105_000, few=3_000)

ATOM = "abcxyzABCXYZ0189_!#$%&'*+-/=?^`{|}~"
# Letters of many kinds, such as combining letters and letters that are written from right to left,
# and other symbols.
LETTERS = (
    "\u00e9\u00c9\u00df\u03c2\u03a3\u03c3\u0130\u0131\u017f\u212a\u4e2d\u6587\u3042\u30a2\uac00\u0915\u093e"
    "\u05d0\u05d1\u0661a\u0301e\u0308\u1112\u1161\u11ab\uff21\uff10\uff0e\u3002"
    '@<>"\\ \u200d\u202e\xa0\ud800\U0001f600'
)
WORDS = [
    *("info", "Jane", "o'brien", "x", "news+tag", "a.b.c", "first.last", "müller", "用户", "иван"),
]
COMMON_HOSTS = ["example", "mail", "a", "A1", "x-y"]
HOSTS = [
    *COMMON_HOSTS,
    *("xn--mnchen-3ya", "xn--zz", "ab--cd", "bücher", "例え", "1", "-a", "a-", "a_b"),
    *("l" * 63, "l" * 64, "אב", "ex\u0301ample", "faß", "ⅷ", "a.b", ""),
]
ENDINGS = [
    *("com", "COM", "co.uk", "museum", "c", "c1", "1c", "рф", "中国", "com.", "123", "xn--p1ai"),
    "",
    *SPECIAL_USE_DOMAIN_NAMES,
    *(name.title() for name in SPECIAL_USE_DOMAIN_NAMES),
]
ODD_ADDRESSES = [
    "a@[127.0.0.1]",
    "a@[IPv6:::1]",
    '"quoted"@example.com',
    '"a b"@example.com',
    "Jane <jane@example.com>",
    "jane@example.com>",
    "a@b@example.com",
    "\u212a@example.com",
    "jane\uff20example.com",
    "a@\u0338example.com",
    "@example.com",
    "a@",
    "",
    "@",
    "a@example.com\n",
    "a@localhost",
    "a@te\u017ft",
    "a@x.te\u017ft",
    "a@xlocal",
    "a@x.xtest",
]


def normalise_with_library(address: str) -> str | None:
    """Normalise an e-mail address with the library email_validator.

    Return ``None`` if the library rejects the address, or if the address contains invisible
    characters.
    """
    address = strip_invisible(address)
    if has_invisible(address):
        return None
    try:
        return validate_email(address, check_deliverability=False).normalized.lower()
    except EmailNotValidError:
        return None


def random_local_part(random: Random) -> str:
    kind = random.randrange(8)
    if kind < 3:
        return random.choice(WORDS) + str(random.randrange(1000))
    if kind < 6:
        return "".join(random.choices(ATOM + ".", k=random.randrange(1, 12)))
    if kind < 7:
        return "".join(random.choices(ATOM + LETTERS, k=random.randrange(1, 6)))
    return random.choice("aé中") * random.randrange(1, 260)


def random_domain(random: Random) -> str:
    if random.randrange(8) == 0:
        label = "".join(random.choices("abZ09-." + LETTERS, k=random.randrange(1, 9)))
        return f"{label}.{random.choice(ENDINGS)}"
    labels = random.choices(HOSTS, k=random.choice([1, 1, 1, 2, 5]))
    return ".".join([*labels, random.choice(ENDINGS)])


def create_corpus(count: int) -> list[str]:
    random = Random(5321)
    random_addresses = [
        f"{random_local_part(random)}@{random_domain(random)}" for _ in range(count // 3)
    ]
    common_addresses = [
        f"{random.choice(WORDS)}{random.randrange(10**6)}@{random.choice(COMMON_HOSTS)}.{random.choice(ENDINGS)}"
        for _ in range(count - len(random_addresses))
    ]
    return ODD_ADDRESSES + random_addresses + common_addresses


def require_agreement(candidates: list[str]) -> int:
    """Require that Pressroom normalises or rejects each address as email_validator does.

    Return the number of valid addresses.
    """
    verdicts = email_addresses.normalise_addresses(candidates)
    for address, verdict in zip(candidates, verdicts, strict=True):
        expected = normalise_with_library(address)
        normalised = None if isinstance(verdict, InvalidAddress) else verdict
        assert normalised == expected, ascii(address)
    return sum(not isinstance(verdict, InvalidAddress) for verdict in verdicts)


@pytest.mark.tier("fast", "properties")
@pytest.mark.slow
def test_email_validation_equals_reference_library_on_a_large_corpus() -> None:
    valid_count = require_agreement(create_corpus(CORPUS_SIZE))

    assert CORPUS_SIZE / 4 < valid_count < CORPUS_SIZE * 3 / 4


@pytest.mark.tier("fast", "properties")
@settings(max_examples=sized(300, 300, few=25), deadline=None)
@given(st.text(min_size=1, max_size=12), st.text(min_size=1, max_size=12), st.sampled_from(ENDINGS))
@example("Ⓐ", "ﬀ", "com")
def test_email_validation_equals_reference_library_for_random_characters(
    name: str, host: str, ending: str
) -> None:
    require_agreement([f"{name}@{host}.{ending}", f"jane@{host}.{ending}", f"{name}@example.com"])


@pytest.mark.parametrize("length", range(50, 80))
def test_email_validation_equals_reference_library_around_length_limits(length: int) -> None:
    require_agreement(
        [
            "a" * length + "@example.com",
            "a@" + "b" * length + ".com",
            "a@" + "b" * length,
            "a@" + "b.c" * length + ".com",
            "é" * (length + 60) + "@example.com",
            "a" * (length + 170) + "@example.com",
            "a" * (length + 150) + "@bücher.example.com",
            "é@" + "b" * length + ".com",
        ]
    )


@pytest.mark.tier("fast", "properties")
def test_email_validation_equals_reference_library_for_each_character_in_local_part() -> None:
    require_agreement(
        [f"a{chr(point)}b@example.com" for point in range(0, 0x3100, sized(1, 1, few=16))]
    )


def test_oversized_email_address_is_rejected_for_its_length() -> None:
    oversized = "a" * 5_000_000 + "@example.com"

    (verdict,) = email_addresses.normalise_addresses([oversized])

    assert isinstance(verdict, InvalidAddress)
    assert "254" in verdict.reason


# Whitespace, line breaks, a byte-order mark, and zero-width characters.
INVISIBLE_CHARACTERS = (
    *" \t\n\r\v\f\x1a\x85\xa0\xad\u034f\u115f\u1680\u180e\u2003\u2009\u200b\u200c\u200d",
    *"\u200e\u200f\u2028\u2029\u202a\u202f\u205f\u2060\u2064\u2069\u2800\u3000\u3164\ufe0f\ufeff",
    *("\ufff9", "\U000e0001", "\r\n", "\ufeff \u200b\t"),
)


@pytest.mark.parametrize("invisible", INVISIBLE_CHARACTERS, ids=ascii)
def test_invisible_characters_are_stripped_around_addresses_and_rejected_inside(
    invisible: str,
) -> None:
    around = [
        f"{invisible}Jörg@example.com",
        f"ann@example.com{invisible}",
        f"{invisible}b@x.org{invisible}",
    ]
    inside = [
        f"a{invisible}b@example.com",
        f"a@exam{invisible}ple.com",
        f"ann{invisible}@example.com",
    ]

    assert email_addresses.normalise_addresses(around) == [
        "jörg@example.com",
        "ann@example.com",
        "b@x.org",
    ]
    assert all(
        isinstance(each, InvalidAddress) for each in email_addresses.normalise_addresses(inside)
    )
    assert email_addresses.normalise_domain(f"{invisible}Example.com{invisible}") == "example.com"


@pytest.mark.parametrize(
    ("address", "mailbox"),
    [
        ("reader@example.com", "reader@example.com"),
        ("rea.der+news@example.com", "rea.der@example.com"),
        ("reader+a+b@example.com", "reader@example.com"),
        ("+tag@example.com", "+tag@example.com"),
        ("r.e.a.d.e.r+x@gmail.com", "reader@gmail.com"),
        ("rea.der@googlemail.com", "reader@gmail.com"),
    ],
)
def test_plus_tags_and_gmail_dots_are_ignored_to_identify_a_mailbox(
    address: str, mailbox: str
) -> None:
    assert email_addresses.derive_mailbox(address) == mailbox
