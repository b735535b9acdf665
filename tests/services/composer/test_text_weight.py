"""Tests of weighted text lengths, in which social networks count wide characters as two."""

import pytest

from services.composer.text.tweet_weight import measure_tweet_weight


@pytest.mark.parametrize(
    ("text", "weight"),
    [
        ("", 0),
        ("hello", 5),
        ("é", 1),
        ("e\u0301", 1),
        ("Привет", 6),
        ("你好", 4),
        ("こんにちは", 10),
        ("“quoted” – dash…", 16 + 1),
        ("😀", 2),
        ("👨\u200d👩\u200d👧\u200d👦", 2),
        ("👩🏽\u200d🚀", 2),
        ("🇩🇪🇫🇷", 4),
        ("1️⃣", 2),
        ("❤️", 2),
        ("https://example.com", 23),
        ("https://example.com/" + "a" * 500, 23),
        ("see example.com now", 4 + 23 + 4),
        ("(https://example.com/a).", 1 + 23 + 2),
        ("https://example.com/路径", 23 + 4),
    ],
)
def test_tweet_weight_follows_the_rules_of_the_platform(text: str, weight: int) -> None:
    assert measure_tweet_weight(text) == weight


@pytest.mark.parametrize(
    "address", ["https://host.unheardof/" + "a" * 100, "x" + "https://example.com/" + "a" * 100]
)
def test_uncertain_web_address_counts_with_full_length_in_tweet_weight(address: str) -> None:
    assert measure_tweet_weight(address) >= len(address)
