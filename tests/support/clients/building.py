"""Builds both API clients outside the checkout, so that tests can run at the same time.

If `make clients` has built the current clients, the tests use copies of them.
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

# The number of items that ``create_items`` creates of each kind.
ITEM_COUNT = 3
# Operations that return at least ``ITEM_COUNT`` items after a call of ``create_items``.
OPERATIONS_WITH_ITEMS = {
    "list_attachments",
    "list_jobs",
    "list_lists",
    "list_members",
    "list_security_events",
    "list_tags",
    "read_member_history",
}


def create_items(pressroom: Any) -> dict[str, dict[str, int]]:
    """Create items for an owner, and map each operation that returns pages to its arguments."""
    list_ids = [
        pressroom.create_list({"title": "Tea", "slug": f"tea-{time.time_ns()}"})["id"]
        for _ in range(ITEM_COUNT)
    ]
    members = {"members": [{"email": f"reader{n}@example.com"} for n in range(ITEM_COUNT)]}
    pressroom.add_members(list_ids[0], members)
    user_id = pressroom.list_members(list_ids[0]).items[0]["user_id"]
    for n in range(ITEM_COUNT):
        pressroom.upload_attachment(PhotoFile())
        edit = {"name": f"Reader {n}", "add_tags": [f"tag {n}"]}
        pressroom.change_member(list_ids[0], user_id, edit)
        pressroom.create_api_key({"name": f"key {n}"})
    ids = {"list_id": list_ids[0], "user_id": user_id}
    arguments_of_operations = {}
    for operation in read_operations(openapi_document()):
        required = [each.argument for each in operation.parameters if each.is_required]
        has_no_body = operation.body is None
        returns_pages = operation.answer is AnswerKind.PAGE
        if returns_pages and has_no_body and set(required) <= set(ids):
            arguments_of_operations[operation.id] = {name: ids[name] for name in required}
    assert set(arguments_of_operations) > OPERATIONS_WITH_ITEMS
    return arguments_of_operations


class PhotoFile(io.BytesIO):
    """An open photo file, whose attribute ``name`` is the file name in uploads."""

    name = "photo.jpg"

    def __init__(self) -> None:
        super().__init__(photo())


_IGNORE_BUILD_RESULTS = shutil.ignore_patterns(
    "generated", "dist", "build", "node_modules", "*.egg-info"
)
_BUILD_FOLDER = files.ROOT / "build" / "clients"
_SOURCES = (
    files.PYTHON / "src",
    files.TYPESCRIPT / "src",
    files.TYPESCRIPT / "scripts",
    Path(files.__file__).parent,
)


@cache
def are_built() -> bool:
    """Return whether the clients built by `make clients` match the current API and source code."""
    packages = [*_BUILD_FOLDER.glob("*.whl"), *_BUILD_FOLDER.glob("*.tgz")]
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
    """Copy the Python client's project, with the code generated from the OpenAPI document."""
    project = folder / "python"
    shutil.copytree(files.PYTHON, project, ignore=_IGNORE_BUILD_RESULTS)
    if are_built():
        generated = Path("src", "pressroom_client", "generated")
        shutil.copytree(files.PYTHON / generated, project / generated)
    else:
        files.write_python(openapi_document(), project)
    return project


def build_typescript(folder: Path) -> Path:
    """Compile the TypeScript client. Skip the test if Node.js or npm is missing."""
    node = javascript_client.find_node(files.TYPESCRIPT, "the TypeScript client")
    project = folder / "typescript"
    shutil.copytree(files.TYPESCRIPT, project, ignore=_IGNORE_BUILD_RESULTS)
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
    file = folder / "openapi.json"
    file.write_text(json.dumps(openapi_document()))
    return file


def run_tool(project: Path, tool: str, *words: str) -> str:
    return run_program(str(project / "node_modules" / ".bin" / tool), *words, folder=project)


def run_program(*words: str, folder: Path, environment: dict[str, str] | None = None) -> str:
    """Run a program, and return its output."""
    process = subprocess.run(
        words,
        check=False,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.returncode == 0, process.stdout
    return process.stdout
