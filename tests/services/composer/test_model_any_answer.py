import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.errors import DomainError
from integrations.llm.port import CompletionReply, CompletionRequest
from services.composer import model_writer, rules
from services.composer.text import hyperlinks, markup
from services.composer.text.post import MetadataField, Post
from tests.support.composer.injections import ORDERS
from tests.support.composer.posts import posts
from tests.support.sizes import sized

Product = TypeVar("Product")
ALL = frozenset(MetadataField)

pytestmark = pytest.mark.tier("fast", "properties")


@dataclass
class Parrot:
    """A language model that says what a test has it say."""

    text: str
    name: str = "openai/parrot"
    context_tokens: int = 4000

    def ask(self, question: CompletionRequest) -> CompletionReply:
        assert question.seconds > 0
        return CompletionReply(self.text, "parrot", 0, 0)


_texts = st.one_of(
    posts.map(lambda post: post.content[:400]),
    st.sampled_from(ORDERS),
    st.text(max_size=40),
    st.sampled_from(["https://evil.example/win", "@evil_bot", "a,b", "x" * 400, "字" * 400, ""]),
)
_values = st.one_of(_texts, st.lists(_texts, max_size=12), st.none(), st.integers(), st.floats())
_objects = st.dictionaries(
    st.sampled_from(["slug", "summary", "tags", "tweets", "visit", "__proto__"]), _values
)
_shaped = st.fixed_dictionaries(
    {
        "slug": _texts,
        "summary": _texts,
        "tags": st.lists(_texts, max_size=12),
        "tweets": st.lists(_texts, min_size=1, max_size=8),
    }
)
_answers = st.one_of(
    _shaped.map(json.dumps),
    _shaped.map(lambda answer: f"Well: {json.dumps(answer)} {{"),
    _objects.map(json.dumps),
    st.text(max_size=60),
)


def unless_error(write: Callable[[], Product]) -> Product | None:
    """What was written; None if the answer was refused, and for nothing but what it says."""
    try:
        return write()
    except DomainError as error:
        if error.code != "composer.answer_unusable":
            raise
        return None


@pytest.mark.slow
@settings(max_examples=sized(150, 2_000, few=5), deadline=None)
@given(post=posts, answer=_answers)
def test_any_model_answer_keeps_the_metadata_and_tweet_rules_or_is_rejected(
    post: Post, answer: str
) -> None:
    plain, parrot = markup.parse_post(post), Parrot(answer)
    written = unless_error(lambda: model_writer.write_metadata(plain, ALL, parrot, 45.0))
    if written is not None:
        assert rules.find_metadata_faults(plain, written, ALL) == []
        for text in (written.summary or "", *(written.tags or ())):
            assert hyperlinks.find_mentions(text) <= plain.mentions
    tweets = unless_error(lambda: model_writer.write_tweets(plain, parrot, 45.0))
    if tweets is not None:
        assert rules.find_tweets_faults(plain, tweets) == []


@settings(max_examples=sized(50, 500, few=5), deadline=None)
@given(post=posts)
def test_model_instructions_are_the_same_for_every_post(post: Post) -> None:
    told: dict[str, set[str]] = {}

    class Listener(Parrot):
        def ask(self, question: CompletionRequest) -> CompletionReply:
            mark = question.material.splitlines()[0].strip("<>")
            words = told.setdefault(question.schema_name, set())
            words.add(question.instructions.replace(mark, ""))
            assert question.material.endswith(f"\n</{mark}>")
            assert question.material.count(mark) == 2
            return super().ask(question)

    answer = json.dumps({"tweets": ["Bees live in Zanzibar."], "summary": "Bees."})
    for each in (post, Post("Bees", "Bees live in Zanzibar.")):
        model_writer.write_tweets(markup.parse_post(each), Listener(answer), 45.0)
    assert all(len(words) == 1 for words in told.values())
