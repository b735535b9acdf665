import re
from typing import Any

import pytest

from services.composer import rules
from services.composer.text.markup import clean_text, parse_post
from services.composer.text.post import MetadataField, PlainPost, Post, PostMetadata
from services.composer.text.tweet_weight import measure_tweet_weight

HASH = "0123456789abcdef"
POST = parse_post(
    Post(
        "Baking bread",
        "We bake with @anna and Node.js. See https://good.example/a?b=1 for the bread and flour.",
    )
)
FOREIGN_LINKS = [
    "evil.example",
    "www.evil.example",
    "WWW.EVIL.EXAMPLE/x",
    "https://good.example/b",
    "https://good.example.evil.example/a?b=1",
    "http://evil.example@good.example/a",
    "//evil.example/x",
    "ftp://good.example/a",
    "javascript:alert(1)",
    "ｅｖｉｌ．ｅｘａｍｐｌｅ",
    "evil。com",
    "evil.\u200cexample",
    "пример.рф",
    "xn--e1afmkfd.xn--p1ai",
    "me@evil.example",
]
FOREIGN_MENTIONS = ["@eve", "＠eve", "﹫eve", "@anna@evil.social", "@annabel", "(@eve)", "@ева"]


@pytest.mark.parametrize(
    ("kind", "foreign"),
    [
        *(("link", each) for each in FOREIGN_LINKS),
        *(("mention", each) for each in FOREIGN_MENTIONS),
    ],
)
def test_link_or_mention_missing_from_the_post_is_reported_and_removed_from_tweets(
    kind: str, foreign: str
) -> None:
    tweet = f"Read {foreign} today"
    assert any(kind in fault for fault in rules.find_tweets_faults(POST, [tweet]))
    fitted_tweets = rules.fit_tweets(POST, [tweet])
    assert rules.find_tweets_faults(POST, fitted_tweets or ["-"]) == []
    assert not re.search("evil|eve", "".join(fitted_tweets))


def test_tweets_keep_links_and_mentions_of_the_post() -> None:
    tweet = "With @Anna, Node.js and https://good.example/a?b=1."
    assert rules.find_tweets_faults(POST, [tweet]) == []
    assert rules.fit_tweets(POST, [tweet]) == (tweet,)


@pytest.mark.parametrize(
    "tweets",
    [[], ["a b", "A b"], list("abcdef"), [""], ["x" * 281], ["a\n\nb"], ["<b>x</b>"], ["&amp; x"]],
)
def test_tweet_rules_report_each_kind_of_invalid_tweet(tweets: list[str]) -> None:
    assert rules.find_tweets_faults(POST, tweets)


def test_long_tweet_is_shortened_at_a_word_boundary() -> None:
    (tweet,) = rules.fit_tweets(POST, ["word " * 100])
    assert tweet.endswith("word…")
    assert 270 < measure_tweet_weight(tweet) <= 280


@pytest.mark.parametrize(
    ("text", "slug"),
    [
        ("Our town: bread & flour!", "our-town-bread-flour"),
        ("L’été d'Anna", "lete-danna"),
        ("Привет, мир", "privet-mir"),
        ("สวัสดี", "swasdi"),
        ("--a--b--", "a-b"),
        ("!!! ***", "post-01234567"),
        ("", "post-01234567"),
        ("x" * 100, "x" * 80),
        ("word " * 30, ("word-" * 16)[:-1]),
    ],
)
def test_slug_contains_only_plain_words_or_falls_back_to_the_hash(text: str, slug: str) -> None:
    assert rules.fit_slug(text, HASH) == slug


def test_summary_is_shortened_to_whole_sentences() -> None:
    sentence = "This is a sentence of the post about bread."
    summary = rules.fit_summary(" ".join([sentence] * 20))
    assert len(summary) <= 300
    assert summary == " ".join([sentence] * 6)


def test_overlong_first_sentence_of_summary_is_shortened_at_a_word_boundary() -> None:
    summary = rules.fit_summary("bread " * 100 + "end.")
    assert re.fullmatch(r"(bread )+bread…", summary)
    assert 290 < len(summary) <= 300


def test_tags_are_limited_to_8_plain_distinct_entries() -> None:
    tags = rules.fit_tags(
        ["bread, flour", "Ｂread", "bread", "#oven", "", "!!", "**a**", *"bcdefghi"]
    )
    assert tags == ("bread flour", "Ｂread", "oven", "a", "b", "c", "d", "e")


INVALID_VALUES: dict[MetadataField, list[Any]] = {
    MetadataField.SLUG: ["", "-a", "a-", "a--b", "A", "a_b", "é", "a\n", "a" * 81],
    MetadataField.SUMMARY: [
        *("", "x" * 301, "two\nlines", "**bold**", "a [b](https://c.example)", "&lt;"),
    ],
    MetadataField.TAGS: [
        *(("a", "b"), tuple("abcdefghi"), ("a", "A", "b"), ("a,b", "c", "d"), ("a", "b", "")),
    ],
}


@pytest.mark.parametrize(
    ("metadata_field", "value"),
    [
        (metadata_field, value)
        for metadata_field, values in INVALID_VALUES.items()
        for value in values
    ],
)
def test_metadata_rules_report_each_kind_of_invalid_value(
    metadata_field: MetadataField, value: Any
) -> None:
    assert rules.find_metadata_faults(
        POST, PostMetadata(**{metadata_field: value}), frozenset({metadata_field})
    )


def test_post_with_only_two_content_words_may_have_two_tags() -> None:
    plain = PlainPost(
        clean_text("Bread"), (clean_text("And the flour."),), (), frozenset(), frozenset()
    )
    tags = PostMetadata(tags=("bread", "flour"))
    assert rules.find_metadata_faults(plain, tags, frozenset({MetadataField.TAGS})) == []


def test_metadata_rules_report_missing_and_unwanted_fields() -> None:
    assert rules.find_metadata_faults(POST, PostMetadata(slug="a"), frozenset()) == [
        "slug is not wanted"
    ]
    assert rules.find_metadata_faults(POST, PostMetadata(), frozenset({MetadataField.SLUG})) == [
        "slug is missing"
    ]
