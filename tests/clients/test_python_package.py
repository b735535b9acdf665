"""Tests of the Python client's package: its types, contents and examples."""

import inspect
import os
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import pytest

from clients.generator import files
from clients.generator.operations import read_operations
from devstack.harness.stack import Owner, Stack
from tests.support.clients import readme_examples
from tests.support.clients.building import run_program
from tests.support.http.openapi import openapi_document

pytestmark = pytest.mark.tier("clients")

_USING_PROGRAM = """
from pressroom_client import AsyncPages, AsyncPressroom, Page, Pressroom
from pressroom_client.generated import types

def use(pressroom: Pressroom) -> None:
    title: str = pressroom.read_list(7)["title"]
    page: Page[types.{member}] = pressroom.list_members(7, limit=10)
    emails = [member["email"] for member in page]
    pressroom.create_list({{"slug": "garden"}})  # type: ignore[typeddict-item]
    pressroom.list_members(7, limit="ten")  # type: ignore[arg-type]
    pressroom.read_list(7)["titel"]  # type: ignore[typeddict-item]
    pressroom.upload_attachment()  # type: ignore[call-arg]
    channel: types.Channel = pressroom.lists.create({{"slug": "garden", "title": "Garden"}})
    pressroom.members.list(7, limit="ten")  # type: ignore[arg-type]

async def use_async(pressroom: AsyncPressroom) -> None:
    channel: types.Channel = await pressroom.lists.read(7)
    members: AsyncPages[types.{member}] = pressroom.members.list(7)
    emails = [member["email"] async for member in members]
    pressroom.members.list(7, limit="ten")  # type: ignore[arg-type]
"""


def test_python_client_has_a_documented_method_for_every_operation(package: ModuleType) -> None:
    document = openapi_document()
    for operation in read_operations(document):
        method = getattr(package.Pressroom, operation.id)
        assert method.__doc__
        method_parameters = set(inspect.signature(method).parameters)
        documented_parameters = {parameter.argument for parameter in operation.parameters}
        assert documented_parameters <= {name.removesuffix("_") for name in method_parameters}, (
            operation.id
        )


def test_python_client_and_code_using_it_pass_strict_type_checks(python_project: Path) -> None:
    list_members = next(
        operation
        for operation in read_operations(openapi_document())
        if operation.id == "list_members"
    )
    name = list_members.answer_schema["$ref"].rpartition("/")[2]
    (python_project / "use.py").write_text(_USING_PROGRAM.format(member=name))
    _run("-m", "mypy", "--strict", "src/pressroom_client", "use.py", folder=python_project)


def test_python_wheel_contains_every_module_of_the_client(
    python_project: Path, tmp_path: Path
) -> None:
    options = ("--no-deps", "--no-build-isolation", "--disable-pip-version-check", "--quiet")
    arguments = ("-m", "pip", "wheel", *options, "--wheel-dir", str(tmp_path), str(python_project))
    _run(*arguments, folder=tmp_path)
    (wheel,) = tmp_path.glob(f"*-{version('pressroom')}-*.whl")
    wheel_files = set(zipfile.ZipFile(wheel).namelist())
    sources = python_project / "src"
    assert {
        file.relative_to(sources).as_posix()
        for file in sources.rglob("*")
        if file.suffix in {".py", ".typed"}
    } <= wheel_files


def test_python_client_readme_examples_work_as_written(
    python_project: Path, stack: Stack, owner: Owner, tmp_path: Path
) -> None:
    readme_examples.write_files(tmp_path)
    script = readme_examples.build_script(files.PYTHON / "README.md", "python", stack, owner)
    (tmp_path / "examples.py").write_text(script)
    output = _run("examples.py", folder=tmp_path, PYTHONPATH=str(python_project / "src"))
    assert readme_examples.LAST_LINE in output


def _run(*arguments: str, folder: Path, **environment: str) -> str:
    variables = {**os.environ, **environment}
    return run_program(sys.executable, *arguments, folder=folder, environment=variables)
