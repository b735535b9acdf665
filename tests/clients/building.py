"""Both clients, built apart from the checkout, so that tests may run beside each other."""

import shutil
import subprocess
from pathlib import Path

from clients.generator import files
from tests import javascript_client

_MADE = shutil.ignore_patterns("generated", "dist", "build", "node_modules", "*.egg-info")
BUILD_SECONDS = 90


def build_python(folder: Path) -> Path:
    """The client's project, with what is made from the document."""
    project = folder / "python"
    shutil.copytree(files.PYTHON, project, ignore=_MADE)
    files.write_python(files.read_document(), project)
    return project


def build_typescript(folder: Path) -> Path:
    """The client's package, compiled; passes the test over where Node.js or npm is missing."""
    javascript_client.node(files.TYPESCRIPT, "the TypeScript client")
    project = folder / "typescript"
    shutil.copytree(files.TYPESCRIPT, project, ignore=_MADE)
    (project / "node_modules").symlink_to(files.TYPESCRIPT / "node_modules")
    files.write_typescript(files.read_document(), project)
    run_tool(
        project, "openapi-typescript", str(files.DOCUMENT), "--output", "src/generated/document.ts"
    )
    run_tool(project, "tsc")
    run_tool(project, "tsc", "--project", "tsconfig.node.json")
    return project


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
