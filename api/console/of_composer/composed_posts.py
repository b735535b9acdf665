"""What a person has the composer write: one part of it, or all."""

import asyncio
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from api.composing.composer_calls import ComposerCaller
from api.console.console_display import amount
from api.console.typed_forms import body_of_form
from api.schemas.composer import PostBody
from core.errors import DomainError
from core.refusals.money import CREDITS_INSUFFICIENT
from services.composer.metadata_requests import OFFLINE, MetadataRequest, MetadataResult
from services.composer.post import MetadataField, Post
from services.jobs.idempotency import IdempotencyKey

TWEETS = "tweets"
ALL = "all"
# What can be asked for, with the label of its button and field.
PARTS = {
    **{field.value: field.value.capitalize() for field in MetadataField},
    TWEETS: "Tweets",
}
# Beside each part, the field of the form that says who wrote it.
BY = "_by"
_ROUTE = "console"


@dataclass(frozen=True)
class Written:
    """The form's fields that were written, and why another one was not."""

    fields: Mapping[str, str]
    error: DomainError | None = None


def post_of(typed: Mapping[str, str]) -> Post:
    """The post that was pasted; raises ``body.invalid`` as the API does."""
    # Browsers send the ends of lines as forms have them.
    content = typed.get("content", "").replace("\r\n", "\n")
    return body_of_form(PostBody, {"title": typed.get("title", ""), "content": content}).post()


async def write(calls: ComposerCaller, post: Post, part: str) -> Written:
    """Have one part written, or all of them at the same time."""
    asked = _asked(post, part)
    outcomes = await asyncio.gather(*(_one(calls, each) for each in asked), return_exceptions=True)
    fields: dict[str, str] = {}
    refusal: DomainError | None = None
    for outcome in outcomes:
        if isinstance(outcome, DomainError):
            refusal = refusal or outcome
        elif isinstance(outcome, BaseException):
            raise outcome
        else:
            fields |= outcome.fields
            fields |= {f"{name}{BY}": outcome.source for name in outcome.fields}
    return Written(fields, refusal)


def writer_words(source: str) -> str:
    """Who wrote it, by the source that a program is told."""
    writer, *more = source.split("; ")
    is_offline = writer == OFFLINE
    words = "the offline writer" if is_offline else f"the model {writer.partition('/')[2]}"
    if "fallback" in more:
        words += ", since the model gave no answer"
    return f"Written by {words}" + (" before, and kept." if "cached" in more else ".")


def why_too_few_credits(error: DomainError) -> str | None:
    """What the call costs and what there is, where credits don't suffice for it."""
    if error.code != CREDITS_INSUFFICIENT.code:
        return None
    needed, balance = (float(error.facts[name]) for name in ("needed", "balance_credit"))
    return f"This costs {amount(needed)} credits, and you have {amount(balance)}."


def _asked(post: Post, part: str) -> list[MetadataRequest]:
    tweets = MetadataRequest(post)
    if part == TWEETS:
        return [tweets]
    if part == ALL:
        return [MetadataRequest(post, frozenset(MetadataField)), tweets]
    return [MetadataRequest(post, frozenset({MetadataField(part)}))]


async def _one(calls: ComposerCaller, asked: MetadataRequest) -> MetadataResult:
    return await calls.written(asked, partial(_call_name, calls.caller.user_id, asked))


def _call_name(user_id: int, asked: MetadataRequest) -> IdempotencyKey:
    """A button that is pressed twice for one text is one call, and charged once."""
    digest = hashlib.sha256()
    for text in (",".join(sorted(asked.wanted)), asked.post.title, asked.post.content):
        # The length before each part keeps ("ab", "c") apart from ("a", "bc").
        content = text.encode()
        digest.update(len(content).to_bytes(8, "big"))
        digest.update(content)
    return IdempotencyKey(user_id, _ROUTE, f"{_ROUTE}-{digest.hexdigest()[:32]}", digest.digest())
