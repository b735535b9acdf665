"""The command ``python -m benchmarks.code_metrics``, which prints metrics of the source code.

If a commit is given, the command compares the current metrics with the metrics of the commit. With
``--list FIGURE``, the command prints every line that counts toward the metric ``FIGURE``.
"""

import argparse
import inspect
import io
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.code_metrics.product_modules import ROOT, Module, read_modules
from benchmarks.code_metrics.readability import FINDERS, find_places, measure_readability
from benchmarks.code_metrics.structure import Figures, measure_structure, modules_with_one_importer


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.code_metrics")
    parser.add_argument("commits", nargs="*", metavar="COMMIT")
    parser.add_argument("--list", choices=FINDERS, dest="figure")
    arguments = parser.parse_args()
    modules = read_modules(ROOT)
    if arguments.figure:
        for place in find_places(arguments.figure, modules):
            print(place)
        return
    columns = {"now": _measure(ROOT, modules, _list_files())}
    columns |= {commit: _measure_commit(commit) for commit in arguments.commits}
    print(_format_table(columns))
    print("Modules that one module imports:\n")
    for name, importer in sorted(modules_with_one_importer(modules).items()):
        print(f"  {name}  <- {importer}")
    print("\nThe file behind each URL:\n")
    for operation, file in _files_behind_urls():
        print(f"  {operation:64} {file}")


def _measure(root: Path, modules: list[Module], files: list[str]) -> Figures:
    line_counts = {name: _count_lines(root / name) for name in files}
    test_line_counts = [
        count
        for name, count in line_counts.items()
        if name.startswith("tests/") and name.endswith(".py")
    ]
    files_and_tests = {
        "files of the repository": f"{len(files):,}",
        "lines of the repository": f"{sum(line_counts.values()):,}",
        "lines of the tests": f"{sum(test_line_counts):,}",
        "modules of the tests": f"{len(test_line_counts):,}",
    }
    return files_and_tests | measure_structure(modules) | measure_readability(modules)


def _list_files() -> list[str]:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    return [name for name in names.split("\0") if name and (ROOT / name).is_file()]


def _count_lines(file: Path) -> int:
    """Return the number of lines of a text file, or 0 for a binary or missing file."""
    content = file.read_bytes() if file.is_file() else b""
    return 0 if b"\0" in content else content.count(b"\n")


def _measure_commit(commit: str) -> Figures:
    command = ["git", "archive", "--format=tar", commit]
    archive = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
    with tempfile.TemporaryDirectory() as folder, tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(folder, filter="data")
        files = [member.name for member in tar.getmembers() if member.isfile()]
        return _measure(Path(folder), read_modules(Path(folder)), files)


def _format_table(columns: dict[str, Figures]) -> str:
    rows = [["", *columns]]
    rows += [[label, *(column[label] for column in columns.values())] for label in columns["now"]]
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return "".join(
        f"{row[0]:{widths[0]}}"
        + "".join(f"  {cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True))
        + "\n"
        for row in rows
    )


def _files_behind_urls() -> Iterator[tuple[str, str]]:
    # Import the application late, because the import takes a second and ``--list`` doesn't need the
    # application.
    from api.app import create_app
    from api.openapi.document import list_api_routes
    from core.settings import Settings

    for route in list_api_routes(create_app(Settings.model_construct())):
        assert route.endpoint
        file = Path(inspect.getfile(inspect.unwrap(route.endpoint)))
        yield f"{','.join(route.methods or ())} {route.path}", str(file.relative_to(ROOT))


if __name__ == "__main__":
    main()
