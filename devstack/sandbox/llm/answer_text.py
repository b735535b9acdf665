"""Right answers: sentences and words of the post, in the shape that the request asks for.

No model writes them, but they are about the post, so that pages look as they would with one.
"""

import hashlib
import re
from collections import Counter
from typing import Any

from anyascii import anyascii

_DELIMITER = re.compile(r"<([\w-]+)>\n(.*?)\n</\1>", re.DOTALL)
_SENTENCE = re.compile(r"[^.!?。！？…\n]+[.!?。！？…]*")  # noqa: RUF001
_URLS_AND_MENTIONS = re.compile(r"\S*://\S*|\S*@\S*|\bwww\.\S*")
_WORD = re.compile(r"[^\W\d_]{4,}")
_WIDE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{2,4}")
_TITLE = "Title: "
_MAX_SUMMARY_CHARACTERS = 290
_MAX_TWEET_CHARACTERS = 130
_MAX_TWEETS = 3
_MAX_TAGS = 5


def instance(body: dict[str, Any]) -> dict[str, object]:
    """An instance of the schema in the request's `response_format`."""
    shape = (body.get("response_format") or {}).get("json_schema") or {"schema": {}}
    messages = body.get("messages") or [{}]
    content = str(messages[-1].get("content", ""))
    # The post is the text between the first pair of delimiters of the last message.
    found = _DELIMITER.search(content)
    text = found[2] if found else content
    properties = shape["schema"].get("properties", {})
    return {name: _value(name, kind, text) for name, kind in properties.items()}


def _value(name: str, kind: dict[str, Any], text: str) -> object:
    sentences = _sentences(text)
    match name, kind.get("type"):
        case "slug", _:
            first = text.splitlines()[0] if text.startswith(_TITLE) else sentences[0]
            words = re.findall(r"[a-z0-9]+", anyascii(first.removeprefix(_TITLE)).lower())
            number = hashlib.sha256(text.encode()).hexdigest()[:8]
            return "-".join(words)[:60].strip("-") or f"post-{number}"
        case "tags", _:
            plain = _URLS_AND_MENTIONS.sub("", text.removeprefix(_TITLE)).casefold()
            counted = Counter(_WIDE.findall(plain) or _WORD.findall(plain))
            return [word for word, _ in counted.most_common(_MAX_TAGS)]
        case _, "array":
            return [_cut(each, _MAX_TWEET_CHARACTERS) for each in sentences[:_MAX_TWEETS]]
    chosen = _cut(sentences[0], _MAX_SUMMARY_CHARACTERS)
    for each in sentences[1:]:
        if len(chosen) + 1 + len(each) > _MAX_SUMMARY_CHARACTERS:
            break
        chosen = f"{chosen} {each}"
    return chosen


def _sentences(text: str) -> list[str]:
    """The text's whole sentences; without any, its lines."""
    lines = _URLS_AND_MENTIONS.sub("", text.removeprefix(_TITLE))
    found = [" ".join(each.split()) for each in _SENTENCE.findall(lines)]
    said = [each for each in found if any(map(str.isalnum, each))]
    return [each for each in said if not each[-1].isalnum()] or said or ["…"]


def _cut(sentence: str, max_characters: int) -> str:
    if len(sentence) <= max_characters:
        return sentence
    whole, space, _ = sentence[: max_characters - 1].rpartition(" ")
    return f"{whole if space else sentence[: max_characters - 1]}…"
