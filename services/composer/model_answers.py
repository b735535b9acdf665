"""Finds the requested JSON object in a language model's response."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from services.composer.text.characters import clean_line

# The tags in which reasoning models enclose drafts, for example `<think>`. If the prompt already
# ends with an opening draft tag, the response contains only the closing tag.
_DRAFTS = "think|thinking|thoughts?|reason|reasoning|reflection|analysis|scratchpad"
_OPENING_MARK = (
    rf"<(?:\w+:)?(?:{_DRAFTS})(?:\s[^<>]*)?(?<!/)>|\[think\]|◁think▷"
    r"|<\|(?:begin_of_|start_)(?:thought|thinking)\|>"
    r"|<\|channel\|?>(?:analysis|commentary|thought)"
)
_CLOSING_MARK = (
    rf"</(?:\w+:)?(?:{_DRAFTS})(?:\s[^<>]*)?>|\[/think\]|◁/think▷"
    r"|<\|end_(?:of_)?(?:thought|thinking)\|>"
    r"|<\|channel\|>final|<channel\|>"
)
_OBJECT_OR_MARK = re.compile(
    rf'(?P<object>\{{(?=\s*["}}]))|(?P<closing>{_CLOSING_MARK})|{_OPENING_MARK}', re.IGNORECASE
)
# The number of broken JSON objects is limited, because the parser may scan the rest of the response
# for each of them.
_MAX_BROKEN_OBJECTS = 100
_MAX_ANSWER_TEXTS = 50
_MAX_ANSWER_TEXT_CHARACTERS = 5000
_BRACKETS_AND_DOTS = " \t\n<>[](){}\"'*_.…"
_MIN_ECHOED_WORDS = 3


class UnreadableAnswer(Exception):
    """No JSON object matches the schema. The exception's message never quotes the response."""


def remove_drafts(text: str) -> str:
    """Remove a language model's drafts, which are enclosed in draft tags.

    If the opening tag is missing, the draft begins at the start of the text. If the closing tag is
    missing, the draft extends to the end. Draft tags inside JSON objects are not removed.
    """
    pieces: list[str] = []
    start = 0
    is_draft = False
    for match, value in _iterate_objects_and_marks(text):
        if value is not None:
            continue
        is_closing = match["closing"] is not None
        if is_closing and not is_draft:
            pieces.clear()
        elif not is_closing and not is_draft:
            pieces.append(text[start : match.start()])
        start = match.end()
        is_draft = not is_closing
    return "".join(pieces if is_draft else [*pieces, text[start:]])


def read_answer(
    text: str, schema: Mapping[str, Any], instructions: str
) -> dict[str, str | tuple[str, ...]]:
    """Return the field values of the last JSON object that matches the schema.

    A language model may correct its answer within one response, so the last object counts. JSON
    objects that only repeat the schema or the instructions are ignored.
    """
    properties = schema["properties"]
    reason = f"The answer isn't a JSON object with {', '.join(sorted(properties))}."
    objects = [value for _, value in _iterate_objects_and_marks(text) if value is not None]
    for answer in reversed(objects):
        if not properties.keys() <= answer.keys():
            continue
        try:
            values = {
                name: _read_value(answer[name], name, properties[name]) for name in properties
            }
        except UnreadableAnswer as error:
            reason = str(error)
            continue
        if not _is_echo(values, instructions):
            return values
    raise UnreadableAnswer(reason)


def _iterate_objects_and_marks(text: str) -> Iterator[tuple[re.Match[str], dict[str, Any] | None]]:
    """Yield the match and the parsed value of each JSON object and draft tag.

    A draft tag has the value ``None``.
    """
    at = 0
    broken = 0
    while match := _OBJECT_OR_MARK.search(text, at):
        at = match.end()
        if match["object"] is None:
            yield match, None
        elif broken < _MAX_BROKEN_OBJECTS:
            try:
                value, at = json.JSONDecoder().raw_decode(text, match.start())
            except (ValueError, RecursionError):
                broken += 1
            else:
                yield match, value


def _read_value(value: object, name: str, schema: Mapping[str, Any]) -> str | tuple[str, ...]:
    if schema["type"] != "array":
        return _read_text(value, name)
    if not isinstance(value, list):
        raise UnreadableAnswer(f"{name} isn't a list of texts.")
    texts = (_read_text(item, f"an item of {name}") for item in value[:_MAX_ANSWER_TEXTS])
    return tuple(filter(None, texts))


def _read_text(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise UnreadableAnswer(f"{name} isn't a text.")
    return clean_line(value[:_MAX_ANSWER_TEXT_CHARACTERS])


def _is_echo(values: Mapping[str, str | tuple[str, ...]], instructions: str) -> bool:
    return all(
        _is_placeholder((value,) if isinstance(value, str) else value, name, instructions)
        for name, value in values.items()
    )


def _is_placeholder(texts: Sequence[str], name: str, instructions: str) -> bool:
    """A placeholder is the field's type or name, a row of dots, or a part of the instructions."""
    words = {text.strip(_BRACKETS_AND_DOTS).lower() for text in texts} - {""}
    kinds = {word.rstrip("0123456789 _-") or word for word in words}
    if len(kinds) != 1:
        return not kinds and any(texts)
    [word] = kinds
    if word in ("string", "text", name, name.removesuffix("s")):
        return True
    is_long = len(word.split()) >= _MIN_ECHOED_WORDS
    return is_long and word in " ".join(instructions.lower().split())
