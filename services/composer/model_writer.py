"""Writes metadata and tweets about a post with a language model.

If an answer breaks a rule in ``services.composer.rules``, Pressroom asks the model once to correct
the answer. If the corrected answer also breaks a rule, Pressroom changes it without the model.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from core.errors import DomainError
from core.errors.composer import COMPOSER_ANSWER_UNUSABLE, LLM_TOO_SLOW
from integrations.llm.port import LanguageModel
from services.composer import rules
from services.composer.model_answers import UnreadableAnswer, read_answer
from services.composer.model_calls import MIN_CALL_SECONDS, ModelCalls
from services.composer.prompt_material import MAX_ANSWER_TOKENS, REPAIR_TOKENS, build_material
from services.composer.prompts import (
    REPAIR,
    TWEETS_PROMPT,
    PromptSpec,
    build_metadata_prompt,
    delimit_text,
)
from services.composer.text.post import MetadataField, PlainPost, PostMetadata
from services.composer.token_estimates import truncate_to_tokens

Product = TypeVar("Product", PostMetadata, tuple[str, ...])


def read_metadata(text: str, prompt: PromptSpec) -> PostMetadata:
    values: dict[str, Any] = read_answer(text, prompt.schema, prompt.text)
    return PostMetadata(**values)


def _read_tweets(text: str) -> tuple[str, ...]:
    return tuple(read_answer(text, TWEETS_PROMPT.schema, TWEETS_PROMPT.text)["tweets"])


@dataclass(frozen=True)
class _Task(Generic[Product]):
    """A prompt, and the functions that parse, check and correct the model's answer."""

    prompt: PromptSpec
    read: Callable[[str], Product]
    find_faults: Callable[[Product], list[str]]
    correct: Callable[[Product], Product]


def write_metadata(
    plain: PlainPost, fields: frozenset[MetadataField], llm: LanguageModel, seconds: float
) -> PostMetadata:
    """Raises ``composer.answer_unusable`` if the model writes no usable text."""

    def find_faults(metadata: PostMetadata) -> list[str]:
        return [
            *rules.find_metadata_faults(plain, metadata, fields),
            *rules.find_foreign_faults(plain, metadata),
        ]

    def correct(metadata: PostMetadata) -> PostMetadata:
        clean = partial(rules.remove_foreign_links, plain)
        slug: str | None = None
        summary: str | None = None
        tags: tuple[str, ...] | None = None
        if metadata.slug is not None:
            slug = rules.fit_slug(clean(metadata.slug), plain.content_hash)
        if metadata.summary is not None:
            summary = rules.fit_summary(clean(metadata.summary))
        if metadata.tags is not None:
            tags = rules.fit_tags(map(clean, metadata.tags))
        return PostMetadata(slug=slug, summary=summary, tags=tags)

    prompt = build_metadata_prompt(fields)
    task = _Task(prompt, partial(read_metadata, prompt=prompt), find_faults, correct)
    return _write(task, plain, ModelCalls(llm, seconds))


def write_tweets(plain: PlainPost, llm: LanguageModel, seconds: float) -> tuple[str, ...]:
    task = _Task(
        TWEETS_PROMPT,
        _read_tweets,
        partial(rules.find_tweets_faults, plain),
        partial(rules.fit_tweets, plain),
    )
    return _write(task, plain, ModelCalls(llm, seconds))


def _write(task: _Task[Product], plain: PlainPost, calls: ModelCalls) -> Product:
    material = build_material(plain, calls)
    text, first, faults = _ask(task, material, calls)
    if first is not None and not faults:
        return first
    attempts = [(first, faults)]
    answer = truncate_to_tokens(text, REPAIR_TOKENS // 2)
    fault_list = "\n".join(f"- {fault}" for fault in faults)
    mark, report = delimit_text(f"{fault_list}\n\nThe answer:\n{answer}")
    repair = (f"\n\n{REPAIR.format(mark=mark)}", f"\n\n{report}")
    try:
        _, second, more_faults = _ask(task, material, calls, repair)
        attempts.insert(0, (second, more_faults))
    except DomainError:
        # If the model can't correct its first answer, Pressroom corrects the answer itself, unless
        # the answer is unreadable.
        if first is None:
            raise
    for product, faults in attempts:
        if product is not None:
            corrected = task.correct(product) if faults else product
            if not task.find_faults(corrected):
                return corrected
    raise COMPOSER_ANSWER_UNUSABLE()


def _ask(
    task: _Task[Product], material: str, calls: ModelCalls, repair: tuple[str, str] = ("", "")
) -> tuple[str, Product | None, list[str]]:
    """Return the answer's text, the parsed answer, and the broken rules.

    The parsed answer is ``None`` if the text can't be parsed.
    """
    if calls.seconds_left < MIN_CALL_SECONDS:
        raise LLM_TOO_SLOW()
    bounds: dict[str, Any] = {"max_tokens": MAX_ANSWER_TOKENS, "seconds": calls.seconds_left}
    text = calls.ask(task.prompt, material, repair=repair, **bounds)
    try:
        product = task.read(text)
    except UnreadableAnswer as unreadable:
        return text, None, [str(unreadable)]
    return text, product, task.find_faults(product)
