"""The product's functions: how long they are, and which of them have one use."""

import ast
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.house.source import Module

MAX_FUNCTION_LINES = 40


@dataclass(frozen=True)
class Function:
    path: Path
    name: str
    line: int
    length: int  # from `def` to its last line: decorators are not counted
    mentions: int  # how often its name stands in its file, the definition included
    calls: int  # how many of these mentions are calls

    @property
    def is_private(self) -> bool:
        return self.name.startswith("_") and not self.name.endswith("__")

    @property
    def is_private_and_used_once(self) -> bool:
        return self.is_private and self.mentions == 2

    @property
    def is_private_and_called_once(self) -> bool:
        """Without callbacks and entries of tables, which need a name of their own."""
        return self.is_private_and_used_once and self.calls == 1


def functions(modules: list[Module]) -> list[Function]:
    return [each for module in modules for each in _functions_of(module)]


def _functions_of(module: Module) -> list[Function]:
    mentions = Counter(re.findall(r"\w+", module.text))
    calls = Counter(
        _name_of(node.func) for node in ast.walk(module.tree) if isinstance(node, ast.Call)
    )
    return [
        Function(
            path=module.path,
            name=node.name,
            line=node.lineno,
            length=(node.end_lineno or node.lineno) - node.lineno + 1,
            mentions=mentions[node.name],
            calls=calls[node.name],
        )
        for node in ast.walk(module.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def _name_of(called: ast.expr) -> str:
    match called:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""
