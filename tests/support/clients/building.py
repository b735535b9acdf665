"""Both clients, apart from the checkout, so that tests may run beside each other.

They are those that `make clients` built. Where it did not, or where the document or the clients
changed since, they are built here.
"""

import io
import json
import shutil
import subprocess
import time
from functools import cache
from pathlib import Path
from typing import Any

from clients.generator import files
from clients.generator.operations import AnswerKind, read_operations
from tests.support.clients import javascript_client
from tests.support.http.openapi import openapi_document
from tests.support.images.pictures import photo

# So many of each are made.
COUNT = 3
# The lists that have this many items then, or more.
FILLED = {
    "list_attachments",
    "list_jobs",
    "list_lists",
    "list_members",
    "list_security_events",
    "list_tags",
    "read_member_history",
}


def lists_of_a_busy_owner(pressroom: Any) -> dict[str, dict[str, int]]:
    """The arguments of each operation that answers pages, after the owner was busy.

    An operation that needs a thing of another kind is left out.
    """
    made = [
        pressroom.create_list({"title": "Tea", "slug": f"tea-{time.time_ns()}"})["id"]
        for _ in range(COUNT)
    ]
    members = {"members": [{"email": f"reader{n}@example.com"} for n in range(COUNT)]}
    pressroom.add_members(made[0], members)
    user_id = pressroom.list_members(made[0]).items[0]["user_id"]
    for n in range(COUNT):
        pressroom.upload_attachment(PhotoFile())
        edit = {"name": f"Reader {n}", "add_tags": [f"tag {n}"]}
        pressroom.change_member(made[0], user_id, edit)
        pressroom.create_api_key({"name": f"key {n}"})
    known = {"list_id": made[0], "user_id": user_id}
    asked = {}
    for operation in read_operations(openapi_document()):
        needed = [each.argument for each in operation.parameters if each.is_required]
        is_asked_by_get = operation.body is None
        is_page = operation.answer is AnswerKind.PAGE
        if is_page and is_asked_by_get and set(needed) <= set(known):
            asked[operation.id] = {name: known[name] for name in needed}
    assert set(asked) > FILLED
    return asked


class PhotoFile(io.BytesIO):
    """An open file with a photograph, which has a name as an image must."""

    name = "photo.jpg"

    def __init__(self) -> None:
        super().__init__(photo())


_MADE = shutil.ignore_patterns("generated", "dist", "build", "node_modules", "*.egg-info")
_BUILT = files.ROOT / "build" / "clients"
_SOURCES = (
    files.PYTHON / "src",
    files.TYPESCRIPT / "src",
    files.TYPESCRIPT / "scripts",
    Path(files.__file__).parent,
)
RUN_SECONDS = 100


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
        if each.suffix in {".py", ".ts", ".mjs"} and "generated" not in each.parts
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
    node = javascript_client.node(files.TYPESCRIPT, "the TypeScript client")
    project = folder / "typescript"
    shutil.copytree(files.TYPESCRIPT, project, ignore=_MADE)
    (project / "node_modules").symlink_to(files.TYPESCRIPT / "node_modules")
    if are_built():
        shutil.copytree(files.TYPESCRIPT / "dist", project / "dist")
        return project
    files.write_typescript(openapi_document(), project)
    run_program(node, "scripts/types.mjs", folder=project)
    run_tool(project, "tsc")
    run_tool(project, "tsc", "--project", "tsconfig.node.json")
    return project


def write_document(folder: Path) -> Path:
    """Write the current OpenAPI document for a program that reads a file."""
    file = folder / "openapi.json"
    file.write_text(json.dumps(openapi_document()))
    return file


def run_tool(project: Path, tool: str, *words: str) -> str:
    """Run a program of the package's development; returns what it says."""
    return run_program(str(project / "node_modules" / ".bin" / tool), *words, folder=project)


def run_program(*words: str, folder: Path, environment: dict[str, str] | None = None) -> str:
    """Run a program; returns what it says. Fails with that too."""
    done = subprocess.run(
        words,
        check=False,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=RUN_SECONDS,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout
