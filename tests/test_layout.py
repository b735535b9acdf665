"""Tests of what test modules import from `tests`, and of where fixtures are defined."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
TEST_MODULES = sorted(
    path for path in TESTS.rglob("*.py") if path.name.startswith(("test_", "conftest"))
)
# Test modules may import only these packages of `tests`: support code and tested tools.
SUPPORT = ("tests.support.", "tests.runner.", "tests.growth.")
# Pairs of a test module and the fixture of conftest.py that the test module may replace.
REPLACED = {
    ("services/webhooks/test_resting.py", "stack"),
}

pytestmark = pytest.mark.tier("check")


def imported_names(path: Path) -> Iterator[str]:
    """Yield the full name of each module, class or function that the Python file imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def fixture_names(path: Path) -> Iterator[str]:
    """Yield the name of each fixture that the Python file defines."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            decorators = map(ast.unparse, node.decorator_list)
            if any(decorator.startswith("pytest.fixture") for decorator in decorators):
                yield node.name


def test_test_modules_import_nothing_from_each_other() -> None:
    imports = {
        f"{path.relative_to(TESTS)} imports {name}"
        for path in TEST_MODULES
        for name in imported_names(path)
        if name.startswith("tests.") and not name.startswith(SUPPORT)
    }
    assert imports == set()


def test_fixture_names_are_unique_within_each_test_folder() -> None:
    """Test that no folder directly below `tests` has two fixtures with the same name.

    The fixtures of `tests/conftest.py` count as fixtures of each folder in `tests`.
    """
    homes: dict[tuple[str, str], list[str]] = defaultdict(list)
    folders = {path.relative_to(TESTS).parts[0] for path in TEST_MODULES if path.parent != TESTS}
    for path in TEST_MODULES:
        module = path.relative_to(TESTS)
        for name in fixture_names(path):
            if (str(module), name) not in REPLACED:
                for folder in folders if path.parent == TESTS else {module.parts[0]}:
                    homes[folder, name].append(str(module))
    assert {key: modules for key, modules in homes.items() if len(modules) > 1} == {}
