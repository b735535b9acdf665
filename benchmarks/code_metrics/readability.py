"""Counts hard-to-read patterns in the product's code, such as vague names."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.code_metrics.product_modules import Module

VAGUE_NAMES = frozenset(
    {
        *(
            "alike",
            "asked",
            "both",
            "done",
            "found",
            "given",
            "here",
            "kept",
            "least",
            "left",
            "made",
        ),
        *("mine", "most", "own", "said", "shown", "taken", "theirs", "told", "wanted", "whole"),
    }
)
# Matches decorators that give a function a public name, such as a route, a command or an event.
_NAMING_DECORATORS = re.compile(
    r"router|app|get|post|put|patch|delete|command|callback|fixture|register|listens_for"
    r"|exception_handler"
)
_CONSTANT_NAME = re.compile(r"_?[A-Z][A-Z0-9_]*")
_SQL = re.compile(
    r"\b(SELECT|INSERT|UPDATE|DELETE|WITH|CREATE|text\(|select\(|update\(|delete\(|insert\()"
)
_REFERENCE_TO_NEIGHBOUR = re.compile(r"(As|Like) `{0,2}\w+`|The same ")

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
DefinitionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True)
class Place:
    """A line of code that one of the functions in `FINDERS` has found."""

    module: Module
    line: int
    excerpt: str

    def __str__(self) -> str:
        return f"{self.module.path.as_posix()}:{self.line}: {self.excerpt}"


def find_packed_assignments(module: Module) -> Iterator[Place]:
    """Find statements that assign several values at once."""
    for node in ast.walk(module.tree):
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Tuple)
            and isinstance(node.value, ast.Tuple)
        ):
            yield Place(module, node.lineno, ast.unparse(node))


def find_vague_locals(module: Module) -> Iterator[Place]:
    for name in _local_names(module):
        if name.id in VAGUE_NAMES:
            yield Place(module, name.lineno, name.id)


def find_one_word_functions(module: Module) -> Iterator[Place]:
    """Find public module functions whose name lacks a noun, for example ``read``."""
    for function in _public_functions(module):
        if "_" not in function.name:
            yield Place(module, function.lineno, function.name)


def find_orphaned_comments(module: Module) -> Iterator[Place]:
    """Find comment blocks that stand alone between two definitions."""
    lines = module.text.splitlines()
    definition_lines = [node.lineno for node in module.tree.body if _is_definition(node)]
    if not definition_lines:
        return
    string_lines = _lines_of_multiline_strings(module)
    for number in range(definition_lines[0], len(lines)):
        is_comment = lines[number - 1].startswith("#")
        if is_comment and not lines[number].strip() and number not in string_lines:
            yield Place(module, number, lines[number - 1])


def find_late_constants(module: Module) -> Iterator[Place]:
    """Find constants below the first function or class of a module, except SQL statements."""
    for line, name, is_late in _constants(module):
        if is_late:
            yield Place(module, line, name)


def find_late_loggers(module: Module) -> Iterator[Place]:
    """Find loggers that are created below the first function or class of a module."""
    for node, is_late in _assignments(module):
        if is_late and node.value and "get_logger" in ast.unparse(node.value):
            yield Place(module, node.lineno, ast.unparse(node))


def find_attribute_lists(module: Module) -> Iterator[Place]:
    """Find class docstrings that list attributes without saying what the class is."""
    for node, docstring in _docstrings(module):
        if isinstance(node, ast.ClassDef) and docstring.startswith("Attributes:"):
            yield Place(module, node.lineno, node.name)


def find_leaning_docstrings(module: Module) -> Iterator[Place]:
    """Find docstrings that only refer to another definition, such as "Like ``read``"."""
    for node, docstring in _docstrings(module):
        if _REFERENCE_TO_NEIGHBOUR.match(docstring):
            yield Place(module, node.lineno, docstring.splitlines()[0])


FINDERS = {
    "packed": find_packed_assignments,
    "vague": find_vague_locals,
    "one-word": find_one_word_functions,
    "orphans": find_orphaned_comments,
    "late": find_late_constants,
    "loggers": find_late_loggers,
    "attributes": find_attribute_lists,
    "leaning": find_leaning_docstrings,
}


def find_places(figure: str, modules: list[Module]) -> list[Place]:
    """Return the lines that ``FINDERS[figure]`` finds."""
    return [place for module in modules for place in FINDERS[figure](module)]


def measure_readability(modules: list[Module]) -> dict[str, str]:
    """Return the readability metrics, keyed by label."""
    counts = {figure: len(find_places(figure, modules)) for figure in FINDERS}
    line_count = sum(module.line_count for module in modules)
    local_count = sum(1 for module in modules for _ in _local_names(module))
    function_count = sum(1 for module in modules for _ in _public_functions(module))
    constant_count = sum(1 for module in modules for _ in _constants(module))
    packed_per_thousand = 1000 * counts["packed"] / line_count
    vague_percentage = 100 * counts["vague"] / local_count
    one_word_percentage = 100 * counts["one-word"] / function_count
    late_percentage = 100 * counts["late"] / constant_count
    return {
        "packed: assignments of several values per 1,000 lines": f"{packed_per_thousand:.1f}",
        "vague: locals whose name says nothing": f"{vague_percentage:.1f} %",
        "one-word: public functions without a noun": f"{one_word_percentage:.0f} %",
        "orphans: comments that belong to no definition": str(counts["orphans"]),
        "late: constants below the first definition": f"{late_percentage:.0f} %",
        "loggers: loggers below the first definition": str(counts["loggers"]),
        "attributes: class docstrings of attributes only": str(counts["attributes"]),
        "leaning: docstrings that need another one": str(counts["leaning"]),
    }


def _is_definition(node: ast.stmt) -> bool:
    return isinstance(node, DefinitionNode)


def _local_names(module: Module) -> Iterator[ast.Name]:
    for function in ast.walk(module.tree):
        if isinstance(function, FunctionNode):
            for node in ast.walk(function):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    yield node


def _public_functions(module: Module) -> Iterator[FunctionNode]:
    for node in module.tree.body:
        if not isinstance(node, FunctionNode) or node.name.startswith("_"):
            continue
        decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
        if not any(_NAMING_DECORATORS.search(decorator) for decorator in decorators):
            yield node


def _docstrings(module: Module) -> Iterator[tuple[DefinitionNode, str]]:
    for node in ast.walk(module.tree):
        if isinstance(node, DefinitionNode):
            yield node, ast.get_docstring(node) or ""


def _assignments(module: Module) -> Iterator[tuple[ast.Assign | ast.AnnAssign, bool]]:
    """Yield each module-level assignment, and whether a function or class precedes it."""
    is_late = False
    for node in module.tree.body:
        if _is_definition(node):
            is_late = True
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            yield node, is_late


def _constants(module: Module) -> Iterator[tuple[int, str, bool]]:
    """Yield the line and name of each constant, and whether it follows a function or class."""
    for node, is_late in _assignments(module):
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        if not isinstance(target, ast.Name) or not _CONSTANT_NAME.fullmatch(target.id):
            continue
        if node.value is None or not _SQL.search(ast.unparse(node.value)):
            yield node.lineno, target.id, is_late


def _lines_of_multiline_strings(module: Module) -> set[int]:
    return {
        line
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
        if node.end_lineno != node.lineno
    }
