import time
from dataclasses import dataclass, field

import pytest

from core.errors import DomainError, Kind
from integrations.llm.port import CompletionReply, CompletionRequest, LanguageModel
from services.composer import model_writer, rules, token_estimates
from services.composer.text import markup
from services.composer.text.post import MetadataField, PlainPost, Post, PostMetadata
from tests.support.composer.language_model import LanguageModelRun

ALL_FIELDS = frozenset(MetadataField)
TIME_LIMIT_SECONDS = 45.0
HANG_SECONDS = 20.0
POST = markup.parse_post(
    Post(
        "Bees of Zanzibar",
        "# Bees\n\nBees live in Zanzibar. They make **honey** there since 1850. "
        "Honey of the island tastes like [cloves](https://cloves.example/), says @beekeeper.",
    )
)
POSTS = {
    "en": POST,
    "de": markup.parse_post(Post("Die Bienen", "Bienen leben auf der Insel. Sie machen Honig.")),
    "ru": markup.parse_post(Post("", "Пчёлы живут на Занзибаре. Они делают там мёд с 1850 года.")),
    "zh": markup.parse_post(Post("蜜蜂", "蜜蜂住在桑给巴尔。它们从1850年开始酿蜜。岛上有丁香。")),
}


@dataclass
class ModelSequence:
    """Passes each question to the next language model in ``models``."""

    models: list[LanguageModel]
    name: str = "openai/in-turn"
    context_tokens: int = 32_000
    questions: list[CompletionRequest] = field(default_factory=list)

    def ask(self, question: CompletionRequest) -> CompletionReply:
        self.questions.append(question)
        return self.models.pop(0).ask(question)


def write_and_get_error(llm: LanguageModel, seconds: float = TIME_LIMIT_SECONDS) -> DomainError:
    with pytest.raises(DomainError) as raised:
        model_writer.write_metadata(POST, ALL_FIELDS, llm, seconds)
    return raised.value


def keeps_every_rule(plain: PlainPost, metadata: PostMetadata) -> bool:
    return rules.find_metadata_faults(plain, metadata, ALL_FIELDS) == []


@pytest.mark.parametrize("language", POSTS)
def test_valid_model_answer_requires_only_one_call(
    model_run: LanguageModelRun, language: str
) -> None:
    plain = POSTS[language]
    assert keeps_every_rule(
        plain, model_writer.write_metadata(plain, ALL_FIELDS, model_run.model(), TIME_LIMIT_SECONDS)
    )
    assert model_run.calls == 1
    assert (
        rules.find_tweets_faults(
            plain, model_writer.write_tweets(plain, model_run.model(), TIME_LIMIT_SECONDS)
        )
        == []
    )
    assert model_run.calls == 2


@pytest.mark.parametrize("metadata_field", MetadataField)
def test_model_writer_requests_and_returns_only_the_wanted_metadata_field(
    model_run: LanguageModelRun, metadata_field: MetadataField
) -> None:
    metadata = model_writer.write_metadata(
        POST, frozenset({metadata_field}), model_run.model(), TIME_LIMIT_SECONDS
    )
    assert [each for each in MetadataField if getattr(metadata, each) is not None] == [
        metadata_field
    ]
    [request] = model_run.requests
    assert list(request["response_format"]["json_schema"]["schema"]["properties"]) == [
        metadata_field
    ]


@pytest.mark.parametrize("behaviour", ["wrong-shape-once", "no-json-once", "obedient-shape-once"])
def test_invalid_model_answer_is_repaired_by_one_further_call(
    model_run: LanguageModelRun, behaviour: str
) -> None:
    assert keeps_every_rule(
        POST,
        model_writer.write_metadata(
            POST, ALL_FIELDS, model_run.model(behaviour), TIME_LIMIT_SECONDS
        ),
    )
    assert model_run.calls == 2
    system, user = (each["content"] for each in model_run.requests[1]["messages"])
    assert "An earlier answer" in system
    assert "- " in user.partition("</post-")[2]


def test_repair_request_names_each_rule_broken_by_the_model_answer(
    model_run: LanguageModelRun,
) -> None:
    model_writer.write_metadata(
        POST, ALL_FIELDS, model_run.model("too-long-once"), TIME_LIMIT_SECONDS
    )
    report = model_run.requests[1]["messages"][1]["content"].partition("</post-")[2]
    assert "slug" in report
    assert "longer than 300 characters" in report
    assert "more than 8 tags" in report


def test_metadata_and_tweets_still_too_long_after_repair_are_shortened(
    model_run: LanguageModelRun,
) -> None:
    metadata = model_writer.write_metadata(
        POST, ALL_FIELDS, model_run.model("too-long"), TIME_LIMIT_SECONDS
    )
    assert keeps_every_rule(POST, metadata)
    assert (
        rules.find_tweets_faults(
            POST, model_writer.write_tweets(POST, model_run.model("too-long"), TIME_LIMIT_SECONDS)
        )
        == []
    )
    assert model_run.calls == 4


@pytest.mark.parametrize("behaviour", ["thinks", "tries-twice", "parts"])
def test_model_drafts_never_appear_in_metadata_tweets_or_condensed_parts(
    model_run: LanguageModelRun, behaviour: str
) -> None:
    llm = model_run.model(behaviour, context_tokens=4000)
    assert "draft" not in str(
        model_writer.write_metadata(POST, ALL_FIELDS, llm, TIME_LIMIT_SECONDS)
    )
    assert "draft" not in str(model_writer.write_tweets(POST, llm, TIME_LIMIT_SECONDS))
    assert model_run.calls == 2
    model_writer.write_tweets(long_post(20_000), llm, TIME_LIMIT_SECONDS)
    assert model_run.calls > 3
    assert "draft" not in model_run.requests[-1]["messages"][1]["content"]


@pytest.mark.parametrize("behaviour", ["wrong-shape", "no-json", "obedient-shape", "only-thinks"])
def test_model_answer_still_invalid_after_one_repair_is_reported_as_unusable(
    model_run: LanguageModelRun, behaviour: str
) -> None:
    error = write_and_get_error(model_run.model(behaviour))
    assert (error.kind, error.code) == (Kind.PROVIDER_FAILED, "composer.answer_unusable")
    assert model_run.calls == 2


def test_failed_repair_call_falls_back_to_the_shortened_first_answer(
    model_run: LanguageModelRun,
) -> None:
    llm = ModelSequence([model_run.model("too-long"), model_run.model("cut")])
    assert keeps_every_rule(
        POST, model_writer.write_metadata(POST, ALL_FIELDS, llm, TIME_LIMIT_SECONDS)
    )


def test_failed_repair_after_unreadable_answer_reports_the_repair_failure(
    model_run: LanguageModelRun,
) -> None:
    assert (
        write_and_get_error(
            ModelSequence([model_run.model("no-json"), model_run.model("429-long")])
        ).code
        == "llm.unavailable"
    )


@pytest.mark.slow
def test_slow_repair_call_does_not_exceed_the_time_limit(model_run: LanguageModelRun) -> None:
    start = time.monotonic()
    llm = ModelSequence([model_run.model("too-long"), model_run.model("slow")])
    assert keeps_every_rule(POST, model_writer.write_metadata(POST, ALL_FIELDS, llm, 2.5))
    assert time.monotonic() - start < HANG_SECONDS


def test_each_model_call_is_limited_to_20_seconds(model_run: LanguageModelRun) -> None:
    llm = ModelSequence([model_run.model("too-long"), model_run.model()])
    model_writer.write_metadata(POST, ALL_FIELDS, llm, TIME_LIMIT_SECONDS)
    assert [round(each.seconds, 3) for each in llm.questions] == [20.0, 20.0]


def test_no_model_call_is_made_without_enough_time(model_run: LanguageModelRun) -> None:
    assert write_and_get_error(model_run.model(), seconds=0.5).code == "llm.too_slow"
    assert model_run.calls == 0


def long_post(characters: int, sentence: str = "Bees number {} live in Zanzibar. ") -> PlainPost:
    sentences = [sentence.format(number) for number in range(characters // len(sentence))]
    paragraphs = ("".join(sentences[index : index + 5]) for index in range(0, len(sentences), 5))
    return markup.parse_post(Post("A long one", "\n\n".join(paragraphs)))


@pytest.mark.parametrize("characters", [20_000, 100_000])
@pytest.mark.parametrize(
    "sentence", ["Bees number {} live in Zanzibar. ", "第{}只蜜蜂住在桑给巴尔。"]
)
def test_long_post_is_condensed_in_few_model_calls_within_the_context_limit(
    model_run: LanguageModelRun, characters: int, sentence: str
) -> None:
    plain = long_post(characters, sentence)
    llm = model_run.model(context_tokens=4000)
    assert (
        rules.find_tweets_faults(plain, model_writer.write_tweets(plain, llm, TIME_LIMIT_SECONDS))
        == []
    )
    assert 2 < model_run.calls <= 6
    names = [each["response_format"]["json_schema"]["name"] for each in model_run.requests]
    assert names == ["part"] * (model_run.calls - 1) + ["tweets"]
    for request in model_run.requests:
        prompt_tokens = sum(
            token_estimates.estimate_tokens(each["content"]) for each in request["messages"]
        )
        assert prompt_tokens + request["max_tokens"] <= 4000


def test_very_long_post_is_read_to_its_end(model_run: LanguageModelRun) -> None:
    plain = long_post(100_000)
    model_writer.write_tweets(plain, model_run.model(context_tokens=4000), TIME_LIMIT_SECONDS)
    *parts, _ = [each["messages"][1]["content"] for each in model_run.requests]
    assert plain.paragraphs[0] in parts[0]
    assert plain.paragraphs[-1] in parts[-1]


def test_long_post_is_not_condensed_when_time_allows_only_one_model_call(
    model_run: LanguageModelRun,
) -> None:
    plain = long_post(20_000)
    llm = model_run.model(context_tokens=4000)
    assert rules.find_tweets_faults(plain, model_writer.write_tweets(plain, llm, 20.0)) == []
    assert model_run.calls == 1


def test_unreadable_condensed_part_is_replaced_by_the_start_of_its_text(
    model_run: LanguageModelRun,
) -> None:
    plain = long_post(20_000)
    llm = model_run.model("no-json-once", context_tokens=4000)
    assert (
        rules.find_tweets_faults(plain, model_writer.write_tweets(plain, llm, TIME_LIMIT_SECONDS))
        == []
    )
    assert plain.paragraphs[0][:50] in model_run.requests[-1]["messages"][1]["content"]


def test_long_paragraph_without_spaces_is_split_into_parts(model_run: LanguageModelRun) -> None:
    plain = markup.parse_post(Post("", "蜜" * 20_000))
    model_writer.write_tweets(plain, model_run.model(context_tokens=4000), TIME_LIMIT_SECONDS)
    assert model_run.calls > 2
