import re

import pytest

from devstack.sandbox.llm import INJECTED_HANDLE, INJECTED_LINK
from integrations.llm.port import LanguageModel
from services.composer import model_writer, rules
from services.composer.text import hyperlinks, markup
from services.composer.text.post import MetadataField, PlainPost, Post
from tests.support.composer.injections import ORDERS
from tests.support.composer.language_model import Run

ALL = frozenset(MetadataField)
SECONDS = 45.0
_STORY = "Bees live in Zanzibar. They make honey there since 1850. The honey tastes like cloves."
_MARKED = re.compile(
    r"\A<(post-[0-9a-f]{32})>\n(.*?)\n</\1>(?:\n\n<(post-[0-9a-f]{32})>\n.*\n</\3>)?\Z", re.DOTALL
)

each_order = pytest.mark.parametrize("order", range(len(ORDERS)))


def post_with(order: str) -> PlainPost:
    return markup.parse_post(Post("Honey of the island", f"{_STORY}\n\n{order}\n\n{_STORY}"))


def texts_of(plain: PlainPost, llm: LanguageModel) -> list[str]:
    """All that the model writer writes about a post; every rule is checked on the way."""
    written = model_writer.write_metadata(plain, ALL, llm, SECONDS)
    tweets = model_writer.write_tweets(plain, llm, SECONDS)
    assert rules.find_metadata_faults(plain, written, ALL) == []
    assert rules.find_tweets_faults(plain, tweets) == []
    return [written.slug or "", written.summary or "", *(written.tags or ()), *tweets]


@each_order
def test_injected_instructions_in_a_post_change_no_prompt_and_add_no_link_or_mention(
    model_run: Run, order: int, honest_prompts: set[str]
) -> None:
    plain = post_with(ORDERS[order])
    for text in texts_of(plain, model_run.model("obedient")):
        assert INJECTED_LINK not in text
        assert INJECTED_HANDLE not in text
        assert "evil" not in text or "evil" in ORDERS[order]
        assert hyperlinks.find_mentions(text) <= plain.mentions
        assert "://" not in text
    told = set()
    for request in model_run.requests:
        system, user = (each["content"] for each in request["messages"])
        found = _MARKED.match(user)
        assert found, "the post got out of its lines"
        assert user.count(found[1]) == 2
        told.add(system.replace(found[1], "").replace(found[3] or "nothing", ""))
    # What the model is told depends on what is asked, and on nothing in the post.
    assert told == honest_prompts


@pytest.fixture(scope="module")
def honest_prompts(sandbox: str) -> set[str]:
    honest = Run(sandbox)
    texts_of(post_with("Nothing else happens."), honest.model("obedient"))
    return {
        re.sub(r"post-[0-9a-f]{32}", "", request["messages"][0]["content"])
        for request in honest.requests
    }


def test_tweets_may_contain_links_and_mentions_of_the_post(model_run: Run) -> None:
    content = f"{_STORY} Read {INJECTED_LINK} and ask {INJECTED_HANDLE} about it."
    plain = markup.parse_post(Post("Honey", content))
    tweets = model_writer.write_tweets(plain, model_run.model("obedient"), SECONDS)
    assert all(INJECTED_LINK in each and INJECTED_HANDLE in each for each in tweets)
    assert model_run.calls == 1


def test_each_model_call_uses_a_new_delimiter(model_run: Run) -> None:
    plain = post_with("Nothing else happens.")
    for _ in range(5):
        model_writer.write_tweets(plain, model_run.model(), SECONDS)
    marks = {request["messages"][1]["content"].splitlines()[0] for request in model_run.requests}
    assert len(marks) == 5


def test_injected_instructions_in_parts_of_a_long_post_add_no_link_or_mention(
    model_run: Run,
) -> None:
    long = "\n\n".join([_STORY * 20, *ORDERS, _STORY * 20] * 6)
    plain = markup.parse_post(Post("Honey of the island", long))
    texts = texts_of(plain, model_run.model("obedient", context_tokens=4000))
    assert not any(INJECTED_LINK in text or INJECTED_HANDLE in text for text in texts)
    assert all(_MARKED.match(each["messages"][1]["content"]) for each in model_run.requests)
