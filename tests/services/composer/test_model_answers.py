import pytest

from services.composer import model_writer
from services.composer.post import MetadataField, PostMetadata

SUMMARY = frozenset({MetadataField.SUMMARY})


@pytest.mark.parametrize(
    "text",
    [
        '{"summary": "Bees."}',
        '  \n{"summary": "Bees."}  ',
        '```json\n{"summary": "Bees."}\n```',
        'Sure {really}! {"summary": "Bees."} Anything else?',
        '<think>{"plan": 1}, or {"summary"?</think>{"summary": "Bees."}',
        '{"draft": {"a": 1}} {"summary": "Bees.", "extra": [1]}',
        '\ufeff{"summary": "Be\\u0065s."}',
        '{"summary": "\\ud800Bees.\\u0000\\u202e"}',
        '{"summary": " Bees.\\n\\n"}',
    ],
)
def test_the_object_is_found_and_its_text_is_plain(text: str) -> None:
    assert model_writer.read_metadata(text, SUMMARY) == PostMetadata(summary="Bees.")


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
        "{" * 100_000,
        '{"summary": ' + "[" * 100_000,
        '{"a":' * 50_000,
    ],
)
def test_another_shape_is_said_to_be_one(text: str) -> None:
    with pytest.raises(model_writer.UnreadableAnswer):
        model_writer.read_metadata(text, SUMMARY)
