import pytest

from core.languages.reader_languages import available_language, choose_language


@pytest.mark.parametrize(
    ("accepted", "language"),
    [
        ("", "en"),
        ("*", "en"),
        ("de", "de"),
        ("DE", "de"),
        ("de-AT", "de"),
        ("de-Latn-DE-1996", "de"),
        ("fr", "en"),
        ("fr, de;q=0.5", "de"),
        ("en, de", "en"),
        ("en-GB,en;q=0.9,de;q=0.8", "en"),
        ("en;q=0.5, de;q=0.9", "de"),
        ("de;q=0, en", "en"),
        ("de;q=0", "en"),
        ("de ; q=0.7 , fr", "de"),
        ("de;q=2", "en"),
        ("d€, de\x00, ;;q, =", "en"),
        ("deutsch", "en"),
        ("x" * 100_000 + ", de", "en"),
        ("fr," * 1_000, "en"),
    ],
)
def test_accept_language_chooses_highest_weighted_available_language(
    accepted: str, language: str
) -> None:
    assert choose_language(accepted) == language


def test_unavailable_language_falls_back_to_english() -> None:
    assert (available_language("de"), available_language("xx"), available_language(None)) == (
        "de",
        "en",
        "en",
    )
