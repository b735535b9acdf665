"""One question about a post, one repair of the rules its answer breaks, and then mending."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from core.errors import DomainError
from core.refusals.composer import COMPOSER_ANSWER_UNUSABLE
from integrations.llm.port import LanguageModel
from services.composer import rules
from services.composer.model import answers, long_posts, prompts, token_estimates
from services.composer.model.time_budget import TimeBudget
from services.composer.post import MetadataField, PlainPost, PostMetadata

Product = TypeVar("Product", PostMetadata, tuple[str, ...])


@dataclass(frozen=True)
class _Attempt(Generic[Product]):
    text: str
    product: Product | None
    faults: list[str]


@dataclass(frozen=True)
class _Task(Generic[Product]):
    """The prompt for a product, and how an answer to it is read, judged and mended."""

    prompt: prompts.PromptSpec
    read: Callable[[str], Product]
    faults: Callable[[Product], list[str]]
    mend: Callable[[Product], Product]


def metadata(
    plain: PlainPost, wanted: frozenset[MetadataField], llm: LanguageModel, seconds: float
) -> PostMetadata:
    """Raises what the port raises, and ``composer.answer_unusable`` (provider_failed)."""

    def faults(written: PostMetadata) -> list[str]:
        return rules.metadata_faults(plain, written, wanted) + rules.foreign_faults(plain, written)

    def mend(written: PostMetadata) -> PostMetadata:
        slug, summary, tags = written.slug, written.summary, written.tags
        own = partial(rules.remove_foreign, plain)
        return PostMetadata(
            slug=None if slug is None else rules.fit_slug(own(slug), plain.content_hash),
            summary=None if summary is None else rules.fit_summary(own(summary)),
            tags=None if tags is None else rules.fit_tags(map(own, tags)),
        )

    prompt = prompts.metadata_prompt(wanted)
    task = _Task(prompt, partial(answers.metadata, wanted=wanted), faults, mend)
    return _written(task, plain, llm, TimeBudget(seconds))


def tweets(plain: PlainPost, llm: LanguageModel, seconds: float) -> tuple[str, ...]:
    """Raises what the port raises, and ``composer.answer_unusable`` (provider_failed)."""
    task = _Task(
        prompts.TWEETS_PROMPT,
        answers.tweets,
        partial(rules.tweets_faults, plain),
        partial(rules.fit_tweets, plain),
    )
    return _written(task, plain, llm, TimeBudget(seconds))


def _written(
    task: _Task[Product], plain: PlainPost, llm: LanguageModel, budget: TimeBudget
) -> Product:
    material = long_posts.material(plain, llm, budget)
    first = _asked(task, material, llm, budget)
    if first.product is not None and not first.faults:
        return first.product
    attempts = [first]
    try:
        attempts.insert(0, _asked(task, material, llm, budget, failed=first))
    except DomainError:
        # The first answer may still be mended.
        if first.product is None:
            raise
    for attempt in attempts:
        if attempt.product is not None:
            mended = task.mend(attempt.product) if attempt.faults else attempt.product
            if not task.faults(mended):
                return mended
    raise COMPOSER_ANSWER_UNUSABLE()


def _asked(
    task: _Task[Product],
    material: str,
    llm: LanguageModel,
    budget: TimeBudget,
    failed: _Attempt[Product] | None = None,
) -> _Attempt[Product]:
    repair = ("", "")
    if failed is not None:
        answer = token_estimates.truncate_to_tokens(failed.text, prompts.REPAIR_TOKENS // 2)
        repair = prompts.repair_prompt(failed.faults, answer)
    text = task.prompt.ask(
        llm,
        material,
        max_tokens=prompts.MAX_ANSWER_TOKENS,
        seconds=budget.for_a_call(),
        repair=repair,
    )
    try:
        product = task.read(text)
    except answers.UnreadableAnswer as unreadable:
        return _Attempt(text, None, [str(unreadable)])
    return _Attempt(text, product, task.faults(product))
