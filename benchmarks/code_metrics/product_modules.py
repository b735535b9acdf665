"""Reads the Python modules of the product, except the database migrations."""

import ast
import io
import tokenize
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = (
    *("api", "cli", "core", "devstack", "integrations"),
    *("models", "services", "storage", "workers"),
)
_TOKENS_WITHOUT_CODE = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
    *(tokenize.ENCODING, tokenize.ENDMARKER),
}


@dataclass(frozen=True)
class Module:
    path: Path  # The path of the module, relative to the root of the Git checkout.
    text: str
    tree: ast.Module

    @property
    def name(self) -> str:
        return ".".join(self.path.with_suffix("").parts).removesuffix(".__init__")

    @property
    def line_count(self) -> int:
        return len(self.text.splitlines())

    @property
    def code_line_count(self) -> int:
        """Return the number of lines of code, without comments, docstrings and blank lines."""
        code_lines = {
            line
            for token in tokenize.generate_tokens(io.StringIO(self.text).readline)
            if token.type not in _TOKENS_WITHOUT_CODE
            for line in range(token.start[0], token.end[0] + 1)
        }
        docstring_lines = {
            line
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and ast.get_docstring(node, clean=False) is not None
            for line in range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)
        }
        return len(code_lines - docstring_lines)


def read_modules(root: Path) -> list[Module]:
    """Return the product's modules in the Git checkout at ``root``, ordered by package and path."""
    modules = []
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            relative_path = path.relative_to(root)
            if relative_path.as_posix().startswith("storage/migrations/"):
                continue
            text = path.read_text()
            modules.append(Module(relative_path, text, ast.parse(text)))
    return modules
