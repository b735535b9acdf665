"""Prompts: the instructions, and apart from them the material, which is never followed.

The post stands between two lines that no post can know, since they are made anew for each call.
No text of a post, nor of an answer about one, ever gets into the instructions.
"""

import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from core.errors import DomainError
from core.errors.composer import COMPOSER_ANSWER_UNUSABLE, LLM_TOO_SLOW
from integrations.llm.port import CompletionRequest, LanguageModel
from services.composer import rules
from services.composer.model_answers import UnreadableAnswer, read_answer, remove_drafts
from services.composer.text.post import MetadataField, PlainPost, PostMetadata

MAX_ANSWER_TOKENS = 1500
MAX_PART_TOKENS = 600
# The instructions, the delimiters, and what a repair adds beside the post.
OVERHEAD_TOKENS = 700
REPAIR_TOKENS = 800


def _text(file_name: str) -> str:
    return Path(__file__).with_name(file_name).read_text("utf-8").removesuffix("\n")


_FRAME, _REPAIR = _text("frame.txt"), _text("repair.txt")
_PARTS = {
    MetadataField.SLUG: "slug: what the post is about in a few words for its address, in Latin "
    "letters whatever the post's language: only a-z, 0-9 and hyphens, at most 80 characters.",
    MetadataField.SUMMARY: "summary: what the post says, in whole sentences, at most 300 "
    "characters in all.",
    MetadataField.TAGS: "tags: 3 to 8 key words or short phrases of the post, without commas, "
    "without #, each once.",
}


@dataclass(frozen=True)
class PromptSpec:
    text: str
    schema_name: str
    schema: dict[str, Any]


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    # No bounds on lengths: strict servers refuse them, and the answer is checked anyway.
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


_TEXT: dict[str, Any] = {"type": "string"}
_TEXTS: dict[str, Any] = {"type": "array", "items": _TEXT}

TWEETS_PROMPT = PromptSpec(_text("tweets.txt"), "tweets", _object({"tweets": _TEXTS}))
CONDENSE_PROMPT = PromptSpec(_text("condense.txt"), "part", _object({"summary": _TEXT}))


def metadata_prompt(wanted: frozenset[MetadataField]) -> PromptSpec:
    # Sort the fields in the order of the enumeration, so that equal requests produce equal prompts.
    parts = [part for part in MetadataField if part in wanted]
    described = "\n".join(_PARTS[part] for part in parts)
    properties = {part.value: _TEXTS if part is MetadataField.TAGS else _TEXT for part in parts}
    return PromptSpec(f"Write about the post:\n{described}", "metadata", _object(properties))


def _delimited(text: str) -> tuple[str, str]:
    """A new mark, and the text between two lines of it."""
    mark = f"post-{secrets.token_hex(16)}"
    return mark, f"<{mark}>\n{text}\n</{mark}>"


MAX_CALL_SECONDS = 20.0
# A call with less than this is not worth its tokens.
MIN_CALL_SECONDS = 1.0


class _Asker:
    """A language model, and the time for all its calls about one post."""

    def __init__(self, llm: LanguageModel, seconds: float) -> None:
        self.context_tokens = llm.context_tokens
        self._llm, self._ends = llm, time.monotonic() + seconds

    @property
    def seconds_left(self) -> float:
        return self._ends - time.monotonic()

    def ask(
        self,
        prompt: PromptSpec,
        material: str,
        *,
        max_tokens: int,
        seconds: float,
        repair: tuple[str, str] = ("", ""),
    ) -> str:
        """Send the prompt to the model, and return the model's response without drafts.

        ``repair`` asks the model to correct its last response. The first text is appended to the
        instructions, the second to the material.
        """
        mark, given = _delimited(material)
        request = CompletionRequest(
            instructions=_FRAME.format(mark=mark, task=prompt.text) + repair[0],
            material=given + repair[1],
            schema=prompt.schema,
            schema_name=prompt.schema_name,
            max_tokens=max_tokens,
            seconds=min(seconds, MAX_CALL_SECONDS),
        )
        return remove_drafts(self._llm.ask(request).text)


# Rather too high: each model counts tokens in its own way, and none of them offline.
_ASCII_CHARACTERS_A_TOKEN = 3
# Two bytes of UTF-8 are one token: Cyrillic is about that, Chinese less, rare scripts more.
_OTHER_BYTES_A_TOKEN = 2


def estimate_tokens(text: str) -> int:
    ascii_only = len(text.encode("ascii", "ignore"))
    others = len(text.encode("utf-8", "replace")) - ascii_only
    return ascii_only // _ASCII_CHARACTERS_A_TOKEN + others // _OTHER_BYTES_A_TOKEN + 1


def truncate_to_tokens(text: str, max_tokens: int) -> str:
    """The beginning of a text, of at most `max_tokens` tokens."""
    while (size := estimate_tokens(text)) > max_tokens:
        text = text[: max(len(text) * max_tokens // size - 1, 0)]
    return text


def split_by_tokens(text: str, max_tokens: int) -> Iterator[str]:
    """The text in pieces of at most `max_tokens` tokens, cut between words where there are any."""
    at = 0
    while at < len(text):
        # No more than this can fit, so that a long text is not measured again and again.
        window = text[at : at + max_tokens * _ASCII_CHARACTERS_A_TOKEN]
        piece = truncate_to_tokens(window, max_tokens) or window[:1]
        if at + len(piece) < len(text):
            whole, space, _ = piece.rpartition(" ")
            piece = whole + space if len(whole) > len(piece) // 2 else piece
        if piece.strip():
            yield piece.strip()
        at += len(piece)


def read_metadata(text: str, prompt: PromptSpec) -> PostMetadata:
    """Parse the model's response to a metadata prompt. Raises ``UnreadableAnswer``."""
    values: dict[str, Any] = read_answer(text, prompt.schema, prompt.text)
    return PostMetadata(**values)


def _read_tweets(text: str) -> tuple[str, ...]:
    return tuple(read_answer(text, TWEETS_PROMPT.schema, TWEETS_PROMPT.text)["tweets"])


_MAX_PARTS = 5
_MAX_HEADING_TOKENS = 200
_MAX_TITLE_TOKENS = 250


def material_of(plain: PlainPost, asker: _Asker) -> str:
    """The material of a question about the post; raises what the port raises."""
    room = asker.context_tokens - MAX_ANSWER_TOKENS - OVERHEAD_TOKENS - REPAIR_TOKENS
    title = truncate_to_tokens(plain.title, _MAX_TITLE_TOKENS)
    headings = truncate_to_tokens("\n".join(plain.headings), _MAX_HEADING_TOKENS)
    head = (f"Title: {title}\n\n" if title else "") + (f"{headings}\n\n" if headings else "")
    body = "\n\n".join(plain.paragraphs)
    left = room - estimate_tokens(head)
    if estimate_tokens(body) <= left:
        return f"{head}{body}"
    parts = list(_parts(plain, room))
    if len(parts) > _MAX_PARTS:
        # Very many parts: take the first, the last, and some evenly between.
        step = (len(parts) - 1) / (_MAX_PARTS - 1)
        parts = [parts[round(number * step)] for number in range(_MAX_PARTS)]
    condensed = [_condensed(part, asker) for part in parts]
    return head + "\n\n".join(
        truncate_to_tokens(each, left // len(parts) - 2) for each in condensed
    )


def _parts(plain: PlainPost, room: int) -> Iterator[str]:
    """Paragraphs in order, gathered until a part is full."""
    gathered: list[str] = []
    size = 0
    for paragraph in plain.paragraphs:
        for piece in split_by_tokens(paragraph, room):
            more = estimate_tokens(piece) + 1
            if gathered and size + more > room:
                yield "\n\n".join(gathered)
                gathered, size = [], 0
            gathered.append(piece)
            size += more
    if gathered:
        yield "\n\n".join(gathered)


def _condensed(part: str, asker: _Asker) -> str:
    """A part's main points; its beginning when time is short or the answer can't be read."""
    beginning = truncate_to_tokens(part, MAX_PART_TOKENS)
    # The question about the whole needs its time.
    spare = asker.seconds_left - MAX_CALL_SECONDS
    if spare < MIN_CALL_SECONDS:
        return beginning
    answer = asker.ask(CONDENSE_PROMPT, part, max_tokens=MAX_PART_TOKENS, seconds=spare)
    try:
        values = read_answer(answer, CONDENSE_PROMPT.schema, CONDENSE_PROMPT.text)
        return str(values["summary"]) or beginning
    except UnreadableAnswer:
        return beginning


Product = TypeVar("Product", PostMetadata, tuple[str, ...])


@dataclass(frozen=True)
class _Task(Generic[Product]):
    """The prompt for a product, and how an answer to it is read, judged and mended."""

    prompt: PromptSpec
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

    prompt = metadata_prompt(wanted)
    task = _Task(prompt, partial(read_metadata, prompt=prompt), faults, mend)
    return _written(task, plain, _Asker(llm, seconds))


def tweets(plain: PlainPost, llm: LanguageModel, seconds: float) -> tuple[str, ...]:
    """Raises what the port raises, and ``composer.answer_unusable`` (provider_failed)."""
    task = _Task(
        TWEETS_PROMPT,
        _read_tweets,
        partial(rules.tweets_faults, plain),
        partial(rules.fit_tweets, plain),
    )
    return _written(task, plain, _Asker(llm, seconds))


def _written(task: _Task[Product], plain: PlainPost, asker: _Asker) -> Product:
    material = material_of(plain, asker)
    text, first, faults = _asked(task, material, asker)
    if first is not None and not faults:
        return first
    attempts = [(first, faults)]
    answer = truncate_to_tokens(text, REPAIR_TOKENS // 2)
    found = "\n".join(f"- {fault}" for fault in faults)
    mark, report = _delimited(f"{found}\n\nThe answer:\n{answer}")
    repair = "\n\n" + _REPAIR.format(mark=mark), f"\n\n{report}"
    try:
        _, second, more_faults = _asked(task, material, asker, repair)
        attempts.insert(0, (second, more_faults))
    except DomainError:
        # The first answer may still be mended.
        if first is None:
            raise
    for product, faults in attempts:
        if product is not None:
            mended = task.mend(product) if faults else product
            if not task.faults(mended):
                return mended
    raise COMPOSER_ANSWER_UNUSABLE()


def _asked(
    task: _Task[Product], material: str, asker: _Asker, repair: tuple[str, str] = ("", "")
) -> tuple[str, Product | None, list[str]]:
    """The text of the answer, its product if it could be read, and the faults."""
    if asker.seconds_left < MIN_CALL_SECONDS:
        raise LLM_TOO_SLOW()
    bounds: dict[str, Any] = {"max_tokens": MAX_ANSWER_TOKENS, "seconds": asker.seconds_left}
    text = asker.ask(task.prompt, material, repair=repair, **bounds)
    try:
        product = task.read(text)
    except UnreadableAnswer as unreadable:
        return text, None, [str(unreadable)]
    return text, product, task.faults(product)
