"""`make house` prints figures of the product's code; with BASE=<commit> also that commit's.

The figures are those by which the order of the house is judged: how much code there is, how many
functions are long or have one use, how full the folders are, and which names mean several things.
"""

import io
import statistics
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from tests.house import names
from tests.house.exceptions import FOLDERS_OF_ANY_SIZE
from tests.house.functions import MAX_FUNCTION_LINES, Function, functions
from tests.house.source import ROOMS, ROOT, Module, modules

Figures = dict[str, str]


def main(arguments: list[str]) -> None:
    columns = {"now": figures(modules(ROOT))}
    if arguments:
        base = arguments[0]
        columns = {base: _figures_of_commit(base), **columns}
    sys.stdout.write(_table(columns))


def figures(tree: list[Module]) -> Figures:
    return _lines(tree) | _functions(functions(tree)) | _folders(tree) | _names(tree)


def _lines(tree: list[Module]) -> Figures:
    return {
        "modules": f"{len(tree):,}",
        "physical lines": f"{sum(module.physical_lines for module in tree):,}",
        "code lines": f"{sum(module.code_lines for module in tree):,}",
        "longest module, lines": str(max(module.physical_lines for module in tree)),
    }


def _functions(found: list[Function]) -> Figures:
    lengths = [function.length for function in found]
    once = sum(function.is_private_and_used_once for function in found)
    called = sum(function.is_private_and_called_once for function in found)
    return {
        "functions": f"{len(found):,}",
        "private, named once beside their definition": f"{once} ({once / len(found):.1%})",
        "of these called, not passed on": f"{called} ({called / len(found):.1%})",
        "function lines, median": f"{statistics.median(lengths):g}",
        "function lines, mean": f"{statistics.mean(lengths):.1f}",
        "function lines, 90th percentile": f"{statistics.quantiles(lengths, n=10)[-1]:g}",
        "function lines, most": str(max(lengths)),
        f"functions over {MAX_FUNCTION_LINES} lines": str(
            sum(length > MAX_FUNCTION_LINES for length in lengths)
        ),
    }


def _folders(tree: list[Module]) -> Figures:
    per_folder = names.modules_per_folder(tree)
    fullest = sorted(per_folder.items(), key=lambda item: (-item[1], item[0]))
    return {
        "folders": str(len(per_folder)),
        "modules in a folder, median": f"{statistics.median(per_folder.values()):g}",
        "fullest folder": _folder(fullest[0]),
        "fullest folder that has a bound": _folder(
            next(each for each in fullest if each[0] not in FOLDERS_OF_ANY_SIZE)
        ),
    }


def _folder(counted: tuple[str, int]) -> str:
    return f"{counted[1]} {counted[0]}"


def _names(tree: list[Module]) -> Figures:
    return {
        "module names used more than once": str(len(names.repeated_module_names(tree))),
        "module names used for several things": str(len(names.ambiguous_module_names(tree))),
        "public class names used more than once": str(len(names.repeated_class_names(tree))),
        "bounds not named MAX_ or MIN_": str(len(names.bounds_of_other_names(tree))),
        "whoever, nobody, somebody": str(names.hidden_actors(tree)),
    }


def _figures_of_commit(commit: str) -> Figures:
    archive = subprocess.run(
        ["git", "archive", "--format=tar", commit, *ROOMS],
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
    ).stdout
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            tar.extractall(folder, filter="data")
        return figures(modules(Path(folder)))


def _table(columns: dict[str, Figures]) -> str:
    lines = [["", *columns]]
    lines += [[row, *(column[row] for column in columns.values())] for row in columns["now"]]
    widths = [max(len(line[place]) for line in lines) for place in range(len(lines[0]))]
    return "".join(
        f"{line[0]:{widths[0]}}"
        + "".join(f"  {cell:>{width}}" for cell, width in zip(line[1:], widths[1:], strict=True))
        + "\n"
        for line in lines
    )


if __name__ == "__main__":
    main(sys.argv[1:])
