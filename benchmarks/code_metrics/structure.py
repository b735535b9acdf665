"""Calculates metrics of the product's modules, functions and names, such as function lengths."""

import ast
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.code_metrics.product_modules import Module

LONG_FUNCTION_LINES = 40

Figures = dict[str, str]


@dataclass(frozen=True)
class Function:
    """The length of a function, and how often its module mentions and calls it."""

    name: str
    line_count: int  # The number of lines of the function, without decorators.
    mention_count: int  # includes the definition
    call_count: int

    @property
    def is_private_and_used_once(self) -> bool:
        is_private = self.name.startswith("_") and not self.name.endswith("__")
        return is_private and self.mention_count == 2


def measure_structure(modules: list[Module]) -> Figures:
    """Return metrics of the product's modules, functions and names, keyed by label."""
    return _measure_modules(modules) | _measure_functions(modules) | _measure_names(modules)


def _measure_modules(modules: list[Module]) -> Figures:
    module_counts = Counter(
        module.path.parent.as_posix() for module in modules if not module.path.stem.startswith("__")
    )
    fullest_folder, fullest_count = max(module_counts.items(), key=lambda item: item[1])
    return {
        "modules of the product": f"{len(modules):,}",
        "lines of the product": f"{sum(module.line_count for module in modules):,}",
        "code lines": f"{sum(module.code_line_count for module in modules):,}",
        "longest module, lines": str(max(module.line_count for module in modules)),
        "modules imported by one module": f"{len(modules_with_one_importer(modules)):,}",
        "folders": str(len(module_counts)),
        "fullest folder": f"{fullest_count} {fullest_folder}",
    }


def modules_with_one_importer(modules: list[Module]) -> dict[str, str]:
    """Return the importer of each module that has exactly one importer."""
    importers: dict[str, list[str]] = {module.name: [] for module in modules}
    for module in modules:
        imported_names = set()
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Import):
                imported_names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                # ``from package import name`` imports either a module or a name in the package.
                for alias in node.names:
                    qualified_name = f"{node.module}.{alias.name}"
                    is_module = qualified_name in importers
                    imported_names.add(qualified_name if is_module else node.module)
        for name in imported_names & importers.keys():
            importers[name].append(module.name)
    return {name: names[0] for name, names in importers.items() if len(names) == 1}


def _measure_functions(modules: list[Module]) -> Figures:
    functions = [function for module in modules for function in _list_functions(module)]
    line_counts = [function.line_count for function in functions]
    used_once = [function for function in functions if function.is_private_and_used_once]
    called_once = [function for function in used_once if function.call_count == 1]
    long_count = sum(line_count > LONG_FUNCTION_LINES for line_count in line_counts)

    def format_share(count: int) -> str:
        return f"{count} ({count / len(functions):.1%})"

    return {
        "functions": f"{len(functions):,}",
        "private functions used once in their module": format_share(len(used_once)),
        "private functions called once in their module": format_share(len(called_once)),
        "function lines, median": f"{statistics.median(line_counts):g}",
        "function lines, mean": f"{statistics.mean(line_counts):.1f}",
        "function lines, 90th percentile": f"{statistics.quantiles(line_counts, n=10)[-1]:g}",
        "function lines, maximum": str(max(line_counts)),
        f"functions longer than {LONG_FUNCTION_LINES} lines": str(long_count),
    }


def _list_functions(module: Module) -> Iterator[Function]:
    mention_counts = Counter(re.findall(r"\w+", module.text))
    nodes = list(ast.walk(module.tree))
    callees = [node.func for node in nodes if isinstance(node, ast.Call)]
    call_counts = Counter(
        [callee.id for callee in callees if isinstance(callee, ast.Name)]
        + [callee.attr for callee in callees if isinstance(callee, ast.Attribute)]
    )
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            line_count = (node.end_lineno or node.lineno) - node.lineno + 1
            yield Function(node.name, line_count, mention_counts[node.name], call_counts[node.name])


def _measure_names(modules: list[Module]) -> Figures:
    paths_by_stem: dict[str, set[Path]] = defaultdict(set)
    class_counts = Counter[str]()
    for module in modules:
        for path in (module.path, *module.path.parents):
            if path.name and not path.stem.startswith("__"):
                paths_by_stem[path.stem].add(path)
        class_counts.update(
            node.name
            for node in module.tree.body
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
        )
    repeated_module_names = sum(len(paths) > 1 for paths in paths_by_stem.values())
    repeated_class_names = sum(count > 1 for count in class_counts.values())
    return {
        "module names used more than once": str(repeated_module_names),
        "public class names used more than once": str(repeated_class_names),
    }
