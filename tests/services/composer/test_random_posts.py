"""The offline composer writes metadata for random posts, and the metadata breaks no rule."""

import pytest
from hypothesis import HealthCheck, given, settings

from services.composer import offline, rules
from services.composer.text.markup import clean_text, parse_post
from services.composer.text.post import MetadataField, Post
from tests.support.composer.posts import posts
from tests.support.sizes import sized

EVERY_PART = frozenset(MetadataField)
HASH = "0123456789abcdef"

pytestmark = pytest.mark.tier("fast", "properties")

generated = settings(
    max_examples=sized(150, 10_000, few=5),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


@pytest.mark.slow
@generated
@given(posts)
def test_offline_metadata_and_tweets_keep_all_rules_for_random_posts(post: Post) -> None:
    plain = parse_post(post)
    written = offline.write_metadata(plain, EVERY_PART, HASH)
    assert rules.find_metadata_faults(plain, written, EVERY_PART) == []
    assert rules.find_tweets_faults(plain, offline.write_tweets(plain)) == []


@generated
@given(posts)
def test_parsed_post_text_is_unchanged_by_a_second_cleaning(post: Post) -> None:
    plain = parse_post(post)
    for text in (plain.title, *plain.headings, *plain.paragraphs):
        assert clean_text(str(text)) == text
        assert "\n" not in text
        assert text.strip() == text
