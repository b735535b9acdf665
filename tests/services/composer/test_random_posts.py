"""Tests that the metadata which the offline composer writes for random posts breaks no rule."""

import pytest
from hypothesis import HealthCheck, given, settings

from services.composer import rules
from services.composer.offline import writer
from services.composer.text.markup import clean_text, parse_post
from services.composer.text.post import MetadataField, Post
from tests.support.composer.posts import posts
from tests.support.sizes import sized

ALL_FIELDS = frozenset(MetadataField)
HASH = "0123456789abcdef"

pytestmark = pytest.mark.tier("fast", "properties")

with_random_posts = settings(
    max_examples=sized(150, 10_000, few=5),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


@pytest.mark.slow
@with_random_posts
@given(posts)
def test_offline_metadata_and_tweets_keep_all_rules_for_random_posts(post: Post) -> None:
    plain = parse_post(post)
    metadata = writer.write_metadata(plain, ALL_FIELDS, HASH)
    assert rules.find_metadata_faults(plain, metadata, ALL_FIELDS) == []
    assert rules.find_tweets_faults(plain, writer.write_tweets(plain)) == []


@with_random_posts
@given(posts)
def test_parsed_post_text_is_unchanged_by_a_second_cleaning(post: Post) -> None:
    plain = parse_post(post)
    for text in (plain.title, *plain.headings, *plain.paragraphs):
        assert clean_text(str(text)) == text
        assert "\n" not in text
        assert text.strip() == text
