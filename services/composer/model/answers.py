"""Reads a language model's answer: JSON, alone or in the midst of prose."""

import json
from typing import Any

from services.composer.post import MetadataField, PostMetadata
from services.composer.text.characters import visible_line

_MAX_JSON_CANDIDATES = 50
_MAX_ANSWER_TEXTS = 50
_MAX_ANSWER_TEXT_CHARACTERS = 5000


class UnreadableAnswer(Exception):
    """The answer has not the shape that was asked for; the text says why, in words of ours."""


def metadata(text: str, wanted: frozenset[MetadataField]) -> PostMetadata:
    """The wanted keys of the answer's object; all other keys and text are left out."""
    answer = _object_with(text, {part.value for part in wanted})
    return PostMetadata(
        slug=_text(answer["slug"], "slug") if MetadataField.SLUG in wanted else None,
        summary=_text(answer["summary"], "summary") if MetadataField.SUMMARY in wanted else None,
        tags=_texts(answer, "tags") if MetadataField.TAGS in wanted else None,
    )


def tweets(text: str) -> tuple[str, ...]:
    return _texts(_object_with(text, {"tweets"}), "tweets")


def part(text: str) -> str:
    return _text(_object_with(text, {"summary"})["summary"], "summary")


def _object_with(text: str, names: set[str]) -> dict[str, Any]:
    found: dict[str, Any]
    at = text.find("{")
    for _ in range(_MAX_JSON_CANDIDATES):
        if at < 0:
            break
        try:
            found, at = json.JSONDecoder().raw_decode(text, at)
        except (ValueError, RecursionError):
            at += 1
        else:
            if names <= found.keys():
                return found
        at = text.find("{", at)
    raise UnreadableAnswer(f"The answer is no JSON object with {', '.join(sorted(names))}.")


def _texts(answer: dict[str, Any], name: str) -> tuple[str, ...]:
    listed = answer[name]
    if not isinstance(listed, list):
        raise UnreadableAnswer(f"{name} is no list of texts.")
    texts = (_text(each, f"an item of {name}") for each in listed[:_MAX_ANSWER_TEXTS])
    return tuple(filter(None, texts))


def _text(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise UnreadableAnswer(f"{name} is no text.")
    return visible_line(value[:_MAX_ANSWER_TEXT_CHARACTERS])
