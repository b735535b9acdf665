import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from string import Formatter

from core.errors.requests import invalid_field
from tests.support.documents.error_catalogue import ENTRIES

_ROOT = Path(__file__).parents[2]
_PRODUCT = ("api", "workers", "services", "integrations", "storage", "cli", "core")


def _placeholders(text: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(text) if name is not None}


def test_every_error_placeholder_has_exactly_one_example_value() -> None:
    for name, entry in ENTRIES:
        placeholders = _placeholders(entry.sentence) | _placeholders(entry.field or "")
        assert placeholders == set(entry.examples), name
        assert "{" not in entry.example_sentence, name


def test_error_catalogue_declares_no_name_or_sentence_twice() -> None:
    names = Counter(name for name, _ in ENTRIES)
    sentences = Counter((entry.kind, entry.code, entry.sentence) for _, entry in ENTRIES)
    assert [name for name, count in names.items() if count > 1] == []
    assert [sentence for sentence, count in sentences.items() if count > 1] == []


def test_only_the_error_catalogue_defines_error_codes_and_sentences() -> None:
    """A module that raises an error must take the error code and text from the error catalogue."""
    errors_with_texts = [
        f"{path.relative_to(_ROOT)}:{node.lineno}"
        for path in _sources()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in {"DomainError", "UnreadableImage"}
        and any(isinstance(each, ast.Constant | ast.JoinedStr) for each in node.args[1:])
    ]
    assert errors_with_texts == []


def _sources() -> Iterator[Path]:
    for package in _PRODUCT:
        yield from (_ROOT / package).rglob("*.py")


def test_error_message_keeps_braces_in_values_unformatted() -> None:
    error = invalid_field("body.{name}", "must not be {this} or {0}")
    assert error.message == "body.{name}: must not be {this} or {0}"
