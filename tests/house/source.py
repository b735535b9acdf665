"""The product's own modules, read as text and as syntax trees."""

import ast
import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

ROOMS = (
    "api",
    "workers",
    "services",
    "integrations",
    "models",
    "storage",
    "core",
    "cli",
    "devstack",
)
# Migrations are history: each says what one release changed, and is never brought up to date.
_LEFT_OUT = ("storage/migrations/",)

_NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


@dataclass(frozen=True)
class Module:
    path: Path  # below the root of the checkout
    text: str
    tree: ast.Module

    @property
    def physical_lines(self) -> int:
        return len(self.text.splitlines())

    @property
    def code_lines(self) -> int:
        """The lines that are not blank and hold more than a comment or a docstring."""
        tokens = tokenize.generate_tokens(io.StringIO(self.text).readline)
        code = {
            line
            for token in tokens
            if token.type not in _NO_CODE
            for line in range(token.start[0], token.end[0] + 1)
        }
        return len(code - self._docstring_lines())

    def _docstring_lines(self) -> set[int]:
        return {
            line
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and ast.get_docstring(node, clean=False) is not None
            for line in range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)
        }


def modules(root: Path) -> list[Module]:
    return [
        Module(path.relative_to(root), text := path.read_text(), ast.parse(text))
        for path in _paths(root)
    ]


def _paths(root: Path) -> Iterator[Path]:
    for room in ROOMS:
        for path in sorted((root / room).rglob("*.py")):
            if not path.relative_to(root).as_posix().startswith(_LEFT_OUT):
                yield path
