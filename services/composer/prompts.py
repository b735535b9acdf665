"""Builds the prompts for a language model.

In a prompt, the post stands between two delimiter lines that contain a random marker. Each prompt
has a new marker, so that the author of a post can't forge a delimiter line to insert instructions.
The instructions never contain text from a post or from a model's answer.
"""

import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.composer.text.post import MetadataField

# The JSON schemas of a single text and of a list of texts.
_TEXT: dict[str, Any] = {"type": "string"}
_TEXTS: dict[str, Any] = {"type": "array", "items": _TEXT}
# Maps each metadata field to its instructions.
_FIELD_INSTRUCTIONS = {
    MetadataField.SLUG: "slug: what the post is about in a few words for its address, in Latin "
    "letters whatever the post's language: only a-z, 0-9 and hyphens, at most 80 characters.",
    MetadataField.SUMMARY: "summary: what the post says, in whole sentences, at most 300 "
    "characters in all.",
    MetadataField.TAGS: "tags: 3 to 8 key words or short phrases of the post, without commas, "
    "without #, each once.",
}


def _read_text(file_name: str) -> str:
    return Path(__file__).with_name(file_name).read_text("utf-8").removesuffix("\n")


FRAME = _read_text("frame.txt")
REPAIR = _read_text("repair.txt")


@dataclass(frozen=True)
class PromptSpec:
    text: str
    schema_name: str
    schema: dict[str, Any]


def _build_object_schema(properties: dict[str, Any]) -> dict[str, Any]:
    # The JSON schema doesn't limit the lengths of texts, because some model servers reject schemas
    # with length limits.
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


TWEETS_PROMPT = PromptSpec(
    _read_text("tweets.txt"), "tweets", _build_object_schema({"tweets": _TEXTS})
)
CONDENSE_PROMPT = PromptSpec(
    _read_text("condense.txt"), "part", _build_object_schema({"summary": _TEXT})
)


def build_metadata_prompt(fields: frozenset[MetadataField]) -> PromptSpec:
    # Sort the fields, so that equal requests produce equal prompts.
    ordered_fields = [field for field in MetadataField if field in fields]
    instructions = "\n".join(_FIELD_INSTRUCTIONS[field] for field in ordered_fields)
    properties = {
        field.value: _TEXTS if field is MetadataField.TAGS else _TEXT for field in ordered_fields
    }
    return PromptSpec(
        f"Write about the post:\n{instructions}", "metadata", _build_object_schema(properties)
    )


def delimit_text(text: str) -> tuple[str, str]:
    """Put delimiter lines around a text, and return the marker and the result."""
    mark = f"post-{secrets.token_hex(16)}"
    return mark, f"<{mark}>\n{text}\n</{mark}>"
