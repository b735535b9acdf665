import json

import pytest

from services.composer import model_writer, prompts
from services.composer.model_answers import UnreadableAnswer, remove_drafts
from services.composer.text.post import MetadataField, PostMetadata

SUMMARY_PROMPT = prompts.build_metadata_prompt(frozenset({MetadataField.SUMMARY}))
ALL_FIELDS_PROMPT = prompts.build_metadata_prompt(frozenset(MetadataField))


@pytest.mark.parametrize(
    "text",
    [
        '{"summary": "Bees."}',
        '  \n{"summary": "Bees."}  ',
        '```json\n{"summary": "Bees."}\n```',
        'Sure {really}! {"summary": "Bees."} Anything else?',
        '{"summary": "Wasps."} The corrected version: {"summary": "Bees."}',
        '{"summary": "string"} {"summary": "Bees."} {"summary": "..."}',
        '{"summary": "Bees."} as {"summary": "What the post says, in whole sentences."} asks',
        '{"summary": "Bees."} {"summary": 1} {"summary": null}',
        '{"a": }' * 99 + '{"summary": "Bees."}',
        "{braces} " * 1000 + '{"summary": "Bees."}',
        '{"draft": {"a": 1}} {"summary": "Bees.", "extra": [1]}',
        '\ufeff{"summary": "Be\\u0065s."}',
        '{"summary": "\\ud800Bees.\\u0000\\u202e"}',
        '{"summary": " Bees.\\n\\n"}',
    ],
)
def test_post_metadata_is_extracted_as_plain_text_from_the_model_answer(text: str) -> None:
    assert model_writer.read_metadata(text, SUMMARY_PROMPT) == PostMetadata(summary="Bees.")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Bees.",
        "null",
        '"summary"',
        '["summary"]',
        '{"summary": 1}',
        '{"summary": null}',
        '{"summary": ["Bees."]}',
        '{"Summary": "Bees."}',
        '{"summary": "Bees.',
        '{"summary": "string"}',
        '{"summary": "<summary>"}',
        '{"summary": "..."}',
        '{"summary": "summary: what the post says, in whole sentences"}',
        "{" * 100_000,
        '{"summary": ' + "[" * 100_000,
        '{"a":' * 50_000,
    ],
)
def test_model_answer_of_wrong_shape_is_rejected(text: str) -> None:
    with pytest.raises(UnreadableAnswer):
        model_writer.read_metadata(text, SUMMARY_PROMPT)


@pytest.mark.parametrize(
    ("text", "visible"),
    [
        ('<think>{"a": 1}</think>{"b": 2}', '{"b": 2}'),
        ('<think>{"a": 1} or {"a"?</think>{"b": 2}', '{"b": 2}'),
        ('{"a": 1}</think>{"b": 2}', '{"b": 2}'),
        ('<think>{"a": 1}', ""),
        ('{"b": 2}<think>{"a": 1}', '{"b": 2}'),
        ("<think>{}</think>", ""),
        ('<THINK class="x">{"a": 1}</THINK >{"b": 2}', '{"b": 2}'),
        ('<thinking>{"a": 1}</thinking>{"b": 2}', '{"b": 2}'),
        ('<reasoning>{"a": 1}</reasoning>{"b": 2}', '{"b": 2}'),
        ('<seed:think>{"a": 1}</seed:think>{"b": 2}', '{"b": 2}'),
        ('[THINK]{"a": 1}[/THINK]{"b": 2}', '{"b": 2}'),
        ('◁think▷{"a": 1}◁/think▷{"b": 2}', '{"b": 2}'),
        ('<|START_THINKING|>{"a": 1}<|END_THINKING|>{"b": 2}', '{"b": 2}'),
        ('<|begin_of_thought|>{"a": 1}<|end_of_thought|>{"b": 2}', '{"b": 2}'),
        ('<|channel|>analysis<|message|>{"a": 1}<|end|><|channel|>final{"b": 2}', '{"b": 2}'),
        ('<|channel|>analysis<|message|>{"a": 1}<|end|>', ""),
        ('<|channel>thought\n{"a": 1}<channel|>{"b": 2}', '{"b": 2}'),
        ('<think>{"a": 1}</think>x<think>{"a": 1}</think>{"b": 2}', 'x{"b": 2}'),
        ('<think><think>{"a": 1}</think>{"a": 1}</think>{"b": 2}', '{"b": 2}'),
        ('<think>{"a": "</think>"}</think>{"b": 2}', '{"b": 2}'),
        ('<think>{"a": "x</think>{"b": 2}', '{"b": 2}'),
        ('{"b": "<think> and </think> are marks"}', '{"b": "<think> and </think> are marks"}'),
        ('{"b": {"c": ["</think>"]}} {"d": 1}', '{"b": {"c": ["</think>"]}} {"d": 1}'),
        ('<think/>{"b": 2} <thinker> [think tank]', '<think/>{"b": 2} <thinker> [think tank]'),
    ],
)
def test_model_reasoning_is_removed_but_its_markers_inside_json_strings_are_kept(
    text: str, visible: str
) -> None:
    assert remove_drafts(text) == visible


def test_model_answer_is_rejected_as_an_echo_only_if_it_repeats_the_schema() -> None:
    answer = {"slug": "text", "summary": "A text about a string.", "tags": ["string", "text"]}
    assert model_writer.read_metadata(json.dumps(answer), ALL_FIELDS_PROMPT).slug == "text"
    echo = {"slug": "slug", "summary": "string", "tags": ["tag1", "tag2", "..."]}
    with pytest.raises(UnreadableAnswer):
        model_writer.read_metadata(json.dumps(echo), ALL_FIELDS_PROMPT)
