"""Prompts: the instructions, and apart from them the material, which is never followed.

The post stands between two lines that no post can know, since they are made anew for each call.
No text of a post, nor of an answer about one, ever gets into the instructions.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from integrations.llm.port import CompletionRequest, LanguageModel
from services.composer.post import MetadataField

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

    def ask(
        self,
        llm: LanguageModel,
        material: str,
        *,
        max_tokens: int,
        seconds: float,
        repair: tuple[str, str] = ("", ""),
    ) -> str:
        """The text of the answer; `repair` is added to the instructions and the material."""
        mark, given = _delimited(material)
        told = _FRAME.format(mark=mark, task=self.text)
        request = CompletionRequest(
            instructions=told + repair[0],
            material=given + repair[1],
            schema=self.schema,
            schema_name=self.schema_name,
            max_tokens=max_tokens,
            seconds=seconds,
        )
        return llm.ask(request).text


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
    # In the order of the enumeration, so that equal questions are equal texts.
    parts = [part for part in MetadataField if part in wanted]
    described = "\n".join(_PARTS[part] for part in parts)
    properties = {part.value: _TEXTS if part is MetadataField.TAGS else _TEXT for part in parts}
    return PromptSpec(f"Write about the post:\n{described}", "metadata", _object(properties))


def _delimited(text: str) -> tuple[str, str]:
    """A new mark, and the text between two lines of it."""
    mark = f"post-{secrets.token_hex(16)}"
    return mark, f"<{mark}>\n{text}\n</{mark}>"


def repair_prompt(faults: Sequence[str], answer: str) -> tuple[str, str]:
    """The additions to the instructions and to the material of the question that went wrong."""
    found = "\n".join(f"- {fault}" for fault in faults)
    mark, report = _delimited(f"{found}\n\nThe answer:\n{answer}")
    return "\n\n" + _REPAIR.format(mark=mark), f"\n\n{report}"
