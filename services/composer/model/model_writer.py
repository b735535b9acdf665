"""One question about a post, one repair of what its answer breaks, and what is then mended."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from core.errors import DomainError
from core.refusals.composer import COMPOSER_ANSWER_UNUSABLE
from integrations.llm.port import CompletionRequest, LanguageModel
from services.composer import rules
from services.composer.model import answers, long_posts, prompts, strangers, tokens
from services.composer.model.allowance import TimeBudget
from services.composer.post import MetadataField, PlainPost, PostMetadata

Product = TypeVar("Product", PostMetadata, tuple[str, ...])


@dataclass(frozen=True)
class _Wish(Generic[Product]):
    """What is asked for, and how an answer to it is read, judged and mended."""

    task: prompts.PromptSpec
    read: Callable[[str], Product]
    faults: Callable[[Product], list[str]]
    mend: Callable[[Product], Product]


@dataclass(frozen=True)
class _Attempt(Generic[Product]):
    text: str
    product: Product | None
    faults: list[str]


def metadata(
    plain: PlainPost, wanted: frozenset[MetadataField], llm: LanguageModel, seconds: float
) -> PostMetadata:
    """Raises what the port raises, and ``composer.answer_unusable`` (provider_failed)."""
    wish = _Wish(
        prompts.metadata(wanted),
        lambda text: answers.metadata(text, wanted),
        lambda written: [
            *rules.metadata_faults(plain, written, wanted),
            *strangers.faults(plain, written),
        ],
        lambda written: _mended(plain, written),
    )
    return _written(wish, plain, llm, TimeBudget(seconds))


def tweets(plain: PlainPost, llm: LanguageModel, seconds: float) -> tuple[str, ...]:
    """Raises what the port raises, and ``composer.answer_unusable`` (provider_failed)."""
    wish = _Wish(
        prompts.tweets(),
        answers.tweets,
        lambda written: rules.tweets_faults(plain, written),
        lambda written: rules.fit_tweets(plain, written),
    )
    return _written(wish, plain, llm, TimeBudget(seconds))


def _written(
    wish: _Wish[Product], plain: PlainPost, llm: LanguageModel, allowance: TimeBudget
) -> Product:
    material = long_posts.material(plain, llm, allowance)
    first = _asked(wish, material, llm, allowance)
    if first.product is not None and not first.faults:
        return first.product
    second = _repaired(wish, first, material, llm, allowance)
    for attempt in (second, first):
        if attempt is not None and attempt.product is not None:
            mended = wish.mend(attempt.product) if attempt.faults else attempt.product
            if not wish.faults(mended):
                return mended
    raise COMPOSER_ANSWER_UNUSABLE()


def _asked(
    wish: _Wish[Product],
    material: str,
    llm: LanguageModel,
    allowance: TimeBudget,
    failed: _Attempt[Product] | None = None,
) -> _Attempt[Product]:
    mark, given = prompts.delimited(material)
    told = prompts.instructions(wish.task, mark)
    if failed is not None:
        answer = tokens.truncate_to_tokens(failed.text, prompts.REPAIR_TOKENS // 2)
        more, report = prompts.repair_prompt(failed.faults, answer)
        told, given = f"{told}\n\n{more}", f"{given}\n\n{report}"
    reply = llm.ask(
        CompletionRequest(
            instructions=told,
            material=given,
            schema=wish.task.schema,
            schema_name=wish.task.schema_name,
            most_tokens=prompts.MAX_ANSWER_TOKENS,
            seconds=allowance.for_a_call(),
        )
    )
    return _judged(wish, reply.text)


def _judged(wish: _Wish[Product], text: str) -> _Attempt[Product]:
    try:
        product = wish.read(text)
    except answers.UnreadableAnswer as unreadable:
        return _Attempt(text, None, [str(unreadable)])
    return _Attempt(text, product, wish.faults(product))


def _repaired(
    wish: _Wish[Product],
    first: _Attempt[Product],
    material: str,
    llm: LanguageModel,
    allowance: TimeBudget,
) -> _Attempt[Product] | None:
    """A second answer; None where it can't be had and the first one may still be mended."""
    try:
        return _asked(wish, material, llm, allowance, failed=first)
    except DomainError:
        if first.product is None:
            raise
        return None


def _mended(plain: PlainPost, written: PostMetadata) -> PostMetadata:
    slug, summary, tags = written.slug, written.summary, written.tags

    def own(text: str) -> str:
        return strangers.removed(plain, text)

    return PostMetadata(
        slug=None if slug is None else rules.fit_slug(own(slug), plain.content_hash),
        summary=None if summary is None else rules.fit_summary(own(summary)),
        tags=None if tags is None else rules.fit_tags(map(own, tags)),
    )
