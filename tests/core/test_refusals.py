"""The catalogue of refusals: what each entry must be, whatever it says."""

import ast
import importlib
import pkgutil
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from string import Formatter

from core import refusals
from core.errors import FieldProblem
from core.refusals.mailing import LIST_IMAGE_URL, LIST_NOT_FOUND
from core.refusals.refusal import Refusal
from core.refusals.requests import BODY_TOO_LARGE, invalid_field

_ROOT = Path(__file__).parents[2]
_PRODUCT = ("api", "workers", "services", "integrations", "storage", "cli", "core")


def _entries() -> Iterator[tuple[str, Refusal]]:
    for area in pkgutil.iter_modules(refusals.__path__):
        module = importlib.import_module(f"core.refusals.{area.name}")
        for name, value in vars(module).items():
            if isinstance(value, Refusal):
                yield name, value


ENTRIES = tuple(_entries())


def _placeholders(text: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(text) if name is not None}


def test_a_code_is_dotted_lower_case() -> None:
    for name, entry in ENTRIES:
        assert re.fullmatch(r"[a-z_]+\.[a-z_]+", entry.code), name


def test_every_placeholder_has_an_example_and_every_example_a_placeholder() -> None:
    for name, entry in ENTRIES:
        wanted = _placeholders(entry.sentence) | _placeholders(entry.field or "")
        assert wanted == set(entry.examples), name
        assert "{" not in entry.documented, name


def test_nothing_is_declared_twice() -> None:
    names = Counter(name for name, _ in ENTRIES)
    sentences = Counter((entry.kind, entry.code, entry.sentence) for _, entry in ENTRIES)
    assert [name for name, count in names.items() if count > 1] == []
    assert [sentence for sentence, count in sentences.items() if count > 1] == []


def test_every_entry_is_used() -> None:
    # By its own name, or by its module's: ``LIST_NOT_FOUND()`` or ``refusals.LIST_NOT_FOUND()``.
    used = {
        node.id if isinstance(node, ast.Name) else node.attr
        for path in _sources()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load)
    }
    assert [name for name, _ in ENTRIES if name not in used] == []


def test_nothing_but_the_catalogue_makes_an_error_of_its_own_words() -> None:
    """A code and a sentence written out elsewhere would be a second place for the same fact."""
    made = [
        f"{path.relative_to(_ROOT)}:{node.lineno}"
        for path in _sources()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in {"DomainError", "UnreadableImage"}
        and any(isinstance(each, ast.Constant | ast.JoinedStr) for each in node.args[1:])
    ]
    assert made == []


def _sources() -> Iterator[Path]:
    for package in _PRODUCT:
        yield from (_ROOT / package).rglob("*.py")


def test_an_entry_without_a_field_names_none() -> None:
    error = LIST_NOT_FOUND()
    assert (error.kind, error.code) == (LIST_NOT_FOUND.kind, "list.not_found")
    assert error.message == "There is no such list."
    assert (error.problems, error.retry_after, error.needed_scope) == ((), None, None)


def test_values_go_into_sentence_and_field() -> None:
    error = LIST_IMAGE_URL(name="favicon_image_url", most=2048)
    sentence = (
        "favicon_image_url must be an absolute http or https address of at most 2048 characters."
    )
    assert error.message == sentence
    assert error.problems == (FieldProblem("body.favicon_image_url", "list.image_url", sentence),)


def test_a_value_is_never_read_as_a_sentence_of_its_own() -> None:
    error = invalid_field("body.{name}", "must not be {this} or {0}")
    assert error.message == "body.{name}: must not be {this} or {0}"


def test_a_refusal_filled_for_good_needs_no_values() -> None:
    filled = BODY_TOO_LARGE.filled(megabytes=8)
    assert filled().message == filled.documented == "The body of this request has at most 8 MB."


def test_the_time_to_wait_may_be_known_only_when_it_is_raised() -> None:
    assert LIST_NOT_FOUND(retry_after=7).retry_after == 7
