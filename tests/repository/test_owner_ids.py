"""Tests that the columns of accounts and of people get ids of the right kind.

SQLAlchemy accepts values of any type in conditions and new rows, so mypy finds no wrong id there.
"""

import ast
from collections.abc import Iterator

import pytest

import models
from tests.support.repository.tracked_files import OURS, ROOT

# The kind of id that each variable or attribute contains.
KINDS = {"account_id": "AccountId", "person_id": "PersonId"}
# The functions whose second and third arguments are a column and its value.
PAGING = ("order_newest_first", "select_owner_page")

pytestmark = pytest.mark.tier("check")


def name_of(node: ast.expr) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else None


def kind_of_column(node: ast.expr) -> str | None:
    """Return ``AccountId`` or ``PersonId`` for a column of a model, or else ``None``.

    The column ``id`` of ``User`` contains ids of both kinds.
    """
    if not isinstance(node, ast.Attribute) or node.attr == "id":
        return None
    model = getattr(models, name_of(node.value) or "", None)
    annotation = str(getattr(model, "__annotations__", {}).get(node.attr))
    return next((kind for kind in KINDS.values() if kind in annotation), None)


def find_pairs(tree: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield each column with the value with which it is compared, or which a new row has."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            yield node.left, node.comparators[0]
        elif isinstance(node, ast.Call) and name_of(node.func) in PAGING:
            yield node.args[1], node.args[2]
        elif isinstance(node, ast.Call):
            for keyword in node.keywords:
                column = ast.Attribute(node.func, keyword.arg or "", lineno=node.lineno)
                yield column, keyword.value


def test_columns_of_accounts_and_people_get_the_right_kind_of_id() -> None:
    right_places: list[str] = []
    wrong_places: list[str] = []
    for path in (path for folder in OURS for path in sorted((ROOT / folder).rglob("*.py"))):
        for column, value in find_pairs(ast.parse(path.read_text())):
            expected, kind = kind_of_column(column), KINDS.get(name_of(value) or "")
            if expected and kind:
                places = right_places if expected == kind else wrong_places
                places.append(f"{path.relative_to(ROOT)}:{column.lineno}")
    assert wrong_places == []
    assert len(right_places) > 50
