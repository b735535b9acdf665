import re

import pytest

from devstack.sandbox.llm import INJECTED_HANDLE, INJECTED_LINK
from integrations.llm.port import LanguageModel
from services.composer import model_writer, rules
from services.composer.text import hyperlinks, markup
from services.composer.text.post import MetadataField, PlainPost, Post
from tests.support.composer.injections import INJECTIONS
from tests.support.composer.language_model import LanguageModelRun

ALL_FIELDS = frozenset(MetadataField)
TIME_LIMIT_SECONDS = 45.0
_STORY = "Bees live in Zanzibar. They make honey there since 1850. The honey tastes like cloves."
_DELIMITED_POST = re.compile(
    r"\A<(post-[0-9a-f]{32})>\n(.*?)\n</\1>(?:\n\n<(post-[0-9a-f]{32})>\n.*\n</\3>)?\Z", re.DOTALL
)

for_each_order = pytest.mark.parametrize("order", range(len(INJECTIONS)))


def build_post(order: str) -> PlainPost:
    return markup.parse_post(Post("Honey of the island", f"{_STORY}\n\n{order}\n\n{_STORY}"))


def write_texts(plain: PlainPost, llm: LanguageModel) -> list[str]:
    """Let ``model_writer`` write texts about a post, and require that the texts have no faults."""
    metadata = model_writer.write_metadata(plain, ALL_FIELDS, llm, TIME_LIMIT_SECONDS)
    tweets = model_writer.write_tweets(plain, llm, TIME_LIMIT_SECONDS)
    assert rules.find_metadata_faults(plain, metadata, ALL_FIELDS) == []
    assert rules.find_tweets_faults(plain, tweets) == []
    return [metadata.slug or "", metadata.summary or "", *(metadata.tags or ()), *tweets]


@for_each_order
def test_injected_instructions_in_a_post_change_no_prompt_and_add_no_link_or_mention(
    model_run: LanguageModelRun, order: int, honest_prompts: set[str]
) -> None:
    plain = build_post(INJECTIONS[order])
    for text in write_texts(plain, model_run.model("obedient")):
        assert INJECTED_LINK not in text
        assert INJECTED_HANDLE not in text
        assert "evil" not in text or "evil" in INJECTIONS[order]
        assert hyperlinks.find_mentions(text) <= plain.mentions
        assert "://" not in text
    instructions = set()
    for request in model_run.requests:
        system, user = (each["content"] for each in request["messages"])
        match = _DELIMITED_POST.match(user)
        assert match, "the post isn't between its delimiters"
        assert user.count(match[1]) == 2
        instructions.add(system.replace(match[1], "").replace(match[3] or "nothing", ""))
    # The instructions to the language model depend on the kind of request, and not on the post.
    assert instructions == honest_prompts


@pytest.fixture(scope="module")
def honest_prompts(sandbox: str) -> set[str]:
    honest_run = LanguageModelRun(sandbox)
    write_texts(build_post("Nothing else happens."), honest_run.model("obedient"))
    return {
        re.sub(r"post-[0-9a-f]{32}", "", request["messages"][0]["content"])
        for request in honest_run.requests
    }


def test_tweets_may_contain_links_and_mentions_of_the_post(model_run: LanguageModelRun) -> None:
    content = f"{_STORY} Read {INJECTED_LINK} and ask {INJECTED_HANDLE} about it."
    plain = markup.parse_post(Post("Honey", content))
    tweets = model_writer.write_tweets(plain, model_run.model("obedient"), TIME_LIMIT_SECONDS)
    assert all(INJECTED_LINK in each and INJECTED_HANDLE in each for each in tweets)
    assert model_run.calls == 1


def test_each_model_call_uses_a_new_delimiter(model_run: LanguageModelRun) -> None:
    plain = build_post("Nothing else happens.")
    for _ in range(5):
        model_writer.write_tweets(plain, model_run.model(), TIME_LIMIT_SECONDS)
    delimiters = {
        request["messages"][1]["content"].splitlines()[0] for request in model_run.requests
    }
    assert len(delimiters) == 5


def test_injected_instructions_in_parts_of_a_long_post_add_no_link_or_mention(
    model_run: LanguageModelRun,
) -> None:
    content = "\n\n".join([_STORY * 20, *INJECTIONS, _STORY * 20] * 6)
    plain = markup.parse_post(Post("Honey of the island", content))
    texts = write_texts(plain, model_run.model("obedient", context_tokens=4000))
    assert not any(INJECTED_LINK in text or INJECTED_HANDLE in text for text in texts)
    assert all(_DELIMITED_POST.match(each["messages"][1]["content"]) for each in model_run.requests)
