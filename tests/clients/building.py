"""Both clients, apart from the checkout, so that tests may run beside each other.

They are those that `make clients` built. Where it did not, or where the document or the clients
changed since, they are built here.
"""

import json
import shutil
import subprocess
from functools import cache
from pathlib import Path

from clients.generator import files
from tests import javascript_client
from tests.openapi import openapi_document

_MADE = shutil.ignore_patterns("generated", "dist", "build", "node_modules", "*.egg-info")
_BUILT = files.ROOT / "build" / "clients"
_SOURCES = (files.PYTHON / "src", files.TYPESCRIPT / "src", Path(files.__file__).parent)
BUILD_SECONDS = 90


@cache
def are_built() -> bool:
    """Return whether `make clients` built both from the current document and sources."""
    packages = [*_BUILT.glob("*.whl"), *_BUILT.glob("*.tgz")]
    if len(packages) < 2 or files.read_document() != openapi_document():
        return False
    newest = max(
        each.stat().st_mtime
        for folder in _SOURCES
        for each in folder.rglob("*.*")
        if each.suffix in {".py", ".ts"} and "generated" not in each.parts
    )
    return newest <= min(each.stat().st_mtime for each in packages)


def build_python(folder: Path) -> Path:
    """The client's project, with what is made from the document."""
    project = folder / "python"
    shutil.copytree(files.PYTHON, project, ignore=_MADE)
    if are_built():
        made = Path("src", "pressroom_client", "generated")
        shutil.copytree(files.PYTHON / made, project / made)
    else:
        files.write_python(openapi_document(), project)
    return project


def build_typescript(folder: Path) -> Path:
    """The client's package, compiled; passes the test over where Node.js or npm is missing."""
    javascript_client.node(files.TYPESCRIPT, "the TypeScript client")
    project = folder / "typescript"
    shutil.copytree(files.TYPESCRIPT, project, ignore=_MADE)
    (project / "node_modules").symlink_to(files.TYPESCRIPT / "node_modules")
    if are_built():
        shutil.copytree(files.TYPESCRIPT / "dist", project / "dist")
        return project
    files.write_typescript(openapi_document(), project)
    document = write_document(folder)
    run_tool(project, "openapi-typescript", str(document), "--output", "src/generated/document.ts")
    run_tool(project, "tsc")
    run_tool(project, "tsc", "--project", "tsconfig.node.json")
    return project


def write_document(folder: Path) -> Path:
    """Write the current OpenAPI document for a program that reads a file."""
    file = folder / "openapi.json"
    file.write_text(json.dumps(openapi_document()))
    return file


def run_tool(project: Path, tool: str, *words: str) -> str:
    """Run a program of the package's development; returns what it says. Fails with that too."""
    done = subprocess.run(
        [project / "node_modules" / ".bin" / tool, *words],
        check=False,
        cwd=project,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=BUILD_SECONDS,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout
