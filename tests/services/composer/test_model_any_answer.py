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
from tests.support.composer.injections import INJECTIONS
from tests.support.composer.posts import posts
from tests.support.sizes import sized

Result = TypeVar("Result")
ALL_FIELDS = frozenset(MetadataField)

pytestmark = pytest.mark.tier("fast", "properties")


@dataclass
class Parrot:
    """A language model that always returns the text that a test has set."""

    text: str
    name: str = "openai/parrot"
    context_tokens: int = 4000

    def ask(self, question: CompletionRequest) -> CompletionReply:
        assert question.seconds > 0
        return CompletionReply(self.text, "parrot", 0, 0)


_texts = st.one_of(
    posts.map(lambda post: post.content[:400]),
    st.sampled_from(INJECTIONS),
    st.text(max_size=40),
    st.sampled_from(["https://evil.example/win", "@evil_bot", "a,b", "x" * 400, "字" * 400, ""]),
)
_values = st.one_of(_texts, st.lists(_texts, max_size=12), st.none(), st.integers(), st.floats())
_objects = st.dictionaries(
    st.sampled_from(["slug", "summary", "tags", "tweets", "visit", "__proto__"]), _values
)
_well_formed_answers = st.fixed_dictionaries(
    {
        "slug": _texts,
        "summary": _texts,
        "tags": st.lists(_texts, max_size=12),
        "tweets": st.lists(_texts, min_size=1, max_size=8),
    }
)
_answers = st.one_of(
    _well_formed_answers.map(json.dumps),
    _well_formed_answers.map(lambda answer: f"Well: {json.dumps(answer)} {{"),
    _objects.map(json.dumps),
    st.text(max_size=60),
)


def write_or_none(write: Callable[[], Result]) -> Result | None:
    """Return the result of ``write``, or None if the language model's answer was unusable."""
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
    plain = markup.parse_post(post)
    parrot = Parrot(answer)
    metadata = write_or_none(lambda: model_writer.write_metadata(plain, ALL_FIELDS, parrot, 45.0))
    if metadata is not None:
        assert rules.find_metadata_faults(plain, metadata, ALL_FIELDS) == []
        for text in (metadata.summary or "", *(metadata.tags or ())):
            assert hyperlinks.find_mentions(text) <= plain.mentions
    tweets = write_or_none(lambda: model_writer.write_tweets(plain, parrot, 45.0))
    if tweets is not None:
        assert rules.find_tweets_faults(plain, tweets) == []


@settings(max_examples=sized(50, 500, few=5), deadline=None)
@given(post=posts)
def test_model_instructions_are_the_same_for_every_post(post: Post) -> None:
    instructions_by_schema: dict[str, set[str]] = {}

    class RecordingParrot(Parrot):
        def ask(self, question: CompletionRequest) -> CompletionReply:
            delimiter = question.material.splitlines()[0].strip("<>")
            instructions = instructions_by_schema.setdefault(question.schema_name, set())
            instructions.add(question.instructions.replace(delimiter, ""))
            assert question.material.endswith(f"\n</{delimiter}>")
            assert question.material.count(delimiter) == 2
            return super().ask(question)

    answer = json.dumps({"tweets": ["Bees live in Zanzibar."], "summary": "Bees."})
    for each in (post, Post("Bees", "Bees live in Zanzibar.")):
        model_writer.write_tweets(markup.parse_post(each), RecordingParrot(answer), 45.0)
    assert all(len(instructions) == 1 for instructions in instructions_by_schema.values())
