"""``python -m benchmarks.house [COMMIT]``: print figures of the code, and those of a commit beside.

The product is the packages of `PACKAGES` without the migrations. After the figures come the lists
that say where to look: the modules with one client, and the file behind each URL.
"""

import ast
import inspect
import io
import re
import statistics
import subprocess
import sys
import tarfile
import tempfile
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = (
    *("api", "cli", "core", "devstack", "integrations"),
    *("models", "services", "storage", "workers"),
)
_LONG_FUNCTION_LINES = 40
_NO_CODE = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
    *(tokenize.ENCODING, tokenize.ENDMARKER),
}

Figures = dict[str, str]


@dataclass(frozen=True)
class Module:
    path: Path  # below the root of the checkout
    text: str
    tree: ast.Module

    @property
    def name(self) -> str:
        return ".".join(self.path.with_suffix("").parts).removesuffix(".__init__")

    @property
    def lines(self) -> int:
        return len(self.text.splitlines())

    @property
    def code_lines(self) -> int:
        """The lines that are not blank and hold more than a comment or a docstring."""
        code = {
            line
            for token in tokenize.generate_tokens(io.StringIO(self.text).readline)
            if token.type not in _NO_CODE
            for line in range(token.start[0], token.end[0] + 1)
        }
        docstrings = {
            line
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and ast.get_docstring(node, clean=False) is not None
            for line in range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)
        }
        return len(code - docstrings)


@dataclass(frozen=True)
class Function:
    name: str
    length: int  # from `def` to its last line: decorators are not counted
    mentions: int  # how often its name stands in its file, the definition included
    calls: int  # how many of these mentions are calls

    @property
    def is_private_and_named_once(self) -> bool:
        is_private = self.name.startswith("_") and not self.name.endswith("__")
        return is_private and self.mentions == 2


def main(arguments: list[str]) -> None:
    product = modules(ROOT)
    columns = {"now": figures(ROOT, product, _files_of_checkout())}
    columns |= {commit: _figures_of_commit(commit) for commit in arguments}
    print(_table(columns))
    print("Modules with one client:\n")
    for module, [client] in sorted(with_one_client(product).items()):
        print(f"  {module}  <- {client}")
    print("\nThe file behind each URL:\n")
    for operation, file in files_behind_urls():
        print(f"  {operation:64} {file}")


def modules(root: Path) -> list[Module]:
    found = []
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            below = path.relative_to(root)
            if not below.as_posix().startswith("storage/migrations/"):
                text = path.read_text()
                found.append(Module(below, text, ast.parse(text)))
    return found


def figures(root: Path, product: list[Module], files: list[str]) -> Figures:
    lines = {name: _lines_of(root / name) for name in files}
    tests = [lines[name] for name in files if name.startswith("tests/") and name.endswith(".py")]
    tree = {
        "files of the tree": f"{len(files):,}",
        "lines of the tree": f"{sum(lines.values()):,}",
        "lines of the tests": f"{sum(tests):,}",
        "modules of the tests": f"{len(tests):,}",
    }
    return tree | _modules(product) | _functions(product) | _names(product)


def _modules(product: list[Module]) -> Figures:
    folders = Counter(
        module.path.parent.as_posix() for module in product if not module.path.stem.startswith("__")
    )
    fullest, count = max(folders.items(), key=lambda item: item[1])
    return {
        "modules of the product": f"{len(product):,}",
        "lines of the product": f"{sum(module.lines for module in product):,}",
        "code lines": f"{sum(module.code_lines for module in product):,}",
        "longest module, lines": str(max(module.lines for module in product)),
        "modules with one client": f"{len(with_one_client(product)):,}",
        "folders": str(len(folders)),
        "fullest folder": f"{count} {fullest}",
    }


def _functions(product: list[Module]) -> Figures:
    found = [function for module in product for function in functions_of(module)]
    lengths = [function.length for function in found]
    once = [function for function in found if function.is_private_and_named_once]
    called = sum(function.calls == 1 for function in once)

    def share(count: int) -> str:
        return f"{count} ({count / len(found):.1%})"

    return {
        "functions": f"{len(found):,}",
        "private, named once beside their definition": share(len(once)),
        "of these called, not passed on": share(called),
        "function lines, median": f"{statistics.median(lengths):g}",
        "function lines, mean": f"{statistics.mean(lengths):.1f}",
        "function lines, 90th percentile": f"{statistics.quantiles(lengths, n=10)[-1]:g}",
        "function lines, most": str(max(lengths)),
        f"functions over {_LONG_FUNCTION_LINES} lines": str(
            sum(length > _LONG_FUNCTION_LINES for length in lengths)
        ),
    }


def functions_of(module: Module) -> Iterator[Function]:
    mentions = Counter(re.findall(r"\w+", module.text))
    nodes = list(ast.walk(module.tree))
    called = [node.func for node in nodes if isinstance(node, ast.Call)]
    calls = Counter(
        [each.id for each in called if isinstance(each, ast.Name)]
        + [each.attr for each in called if isinstance(each, ast.Attribute)]
    )
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            yield Function(node.name, length, mentions[node.name], calls[node.name])


def _names(product: list[Module]) -> Figures:
    places: dict[str, set[Path]] = defaultdict(set)
    classes = Counter[str]()
    for module in product:
        for path in (module.path, *module.path.parents):
            if path.name and not path.stem.startswith("__"):
                places[path.stem].add(path)
        classes.update(
            node.name
            for node in module.tree.body
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
        )
    return {
        "module names used more than once": str(sum(len(each) > 1 for each in places.values())),
        "public class names used more than once": str(sum(each > 1 for each in classes.values())),
    }


def with_one_client(product: list[Module]) -> dict[str, list[str]]:
    clients: dict[str, list[str]] = {module.name: [] for module in product}
    for module in product:
        imported = set()
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Import):
                imported |= {each.name for each in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                # A module of the package, or a name of the module.
                for each in node.names:
                    below = f"{node.module}.{each.name}"
                    imported.add(below if below in clients else node.module)
        for name in imported & clients.keys():
            clients[name].append(module.name)
    return {name: found for name, found in clients.items() if len(found) == 1}


def files_behind_urls() -> Iterator[tuple[str, str]]:
    from api.app import create_app
    from api.openapi import list_api_routes
    from core.settings import Settings

    for route in list_api_routes(create_app(Settings.model_construct())):
        assert route.endpoint
        file = Path(inspect.getfile(inspect.unwrap(route.endpoint)))
        yield f"{','.join(route.methods or ())} {route.path}", str(file.relative_to(ROOT))


def _lines_of(file: Path) -> int:
    content = file.read_bytes() if file.is_file() else b""
    return 0 if b"\0" in content else content.count(b"\n")


def _files_of_checkout() -> list[str]:
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    return [name for name in names.split("\0") if name and (ROOT / name).is_file()]


def _figures_of_commit(commit: str) -> Figures:
    archive = ["git", "archive", "--format=tar", commit]
    content = subprocess.run(archive, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
    with tempfile.TemporaryDirectory() as folder, tarfile.open(fileobj=io.BytesIO(content)) as tar:
        tar.extractall(folder, filter="data")
        files = [member.name for member in tar.getmembers() if member.isfile()]
        return figures(Path(folder), modules(Path(folder)), files)


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
