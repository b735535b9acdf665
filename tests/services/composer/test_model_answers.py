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


@pytest.mark.parametrize("text", ['{"tweets": "one"}', '{"tweets": [1]}', '{"tweets": {"a": 1}}'])
def test_tweets_are_a_list_of_texts(text: str) -> None:
    with pytest.raises(model_writer.UnreadableAnswer):
        model_writer.read_tweets(text)


def test_blank_items_are_none() -> None:
    assert model_writer.read_tweets('{"tweets": ["", " ", "Bees."]}') == ("Bees.",)


@pytest.mark.parametrize("text", ["", "bees", "Пчёлы живут", "蜜蜂住在桑给巴尔", "🐝" * 50])
def test_a_clipped_text_is_a_beginning_that_fits(text: str) -> None:
    clipped = model_writer.truncate_to_tokens(text * 50, 40)
    assert (text * 50).startswith(clipped)
    assert model_writer.estimate_tokens(clipped) <= 40


@pytest.mark.parametrize("text", ["bees live here " * 100, "蜜" * 1000, "a" * 1000])
def test_pieces_are_the_whole_text_in_order(text: str) -> None:
    pieces = list(model_writer.split_by_tokens(text, 50))
    assert "".join("".join(pieces).split()) == "".join(text.split())
    assert all(0 < model_writer.estimate_tokens(piece) <= 50 for piece in pieces)
