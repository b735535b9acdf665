"""Runs the tests of the TypeScript client with Node.js against the test stack."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from api.middleware.versions import VERSIONS
from cli.openapi_document import RELEASES_FOLDER
from clients.generator import files
from clients.generator.operations import read_operations, to_camel_case
from clients.generator.resources import DEPRECATED_OPERATIONS
from core.scopes import Scope
from devstack.harness.stack import Owner, Stack
from tests.support.clients import building, javascript_client, readme_examples, signed_messages
from tests.support.clients.building import (
    are_built,
    build_typescript,
    run_program,
    run_tool,
    write_document,
)
from tests.support.clients.write_names import NAMES_FILE
from tests.support.documents import markdown
from tests.support.http.openapi import openapi_document
from tests.support.images.pictures import photo
from tests.support.people import oauth
from tests.support.prerequisites import skip_or_fail

pytestmark = pytest.mark.tier("clients")

TESTS_FOLDER = Path(__file__).parent / "typescript"
# Pairs of a resource and a method in the released Python client, such as ``account`` and ``read``.
# The TypeScript client has the same resources and methods as the Python client, but writes their
# names in camel case.
RELEASED_METHODS = re.findall(
    r"^pressroom_client Pressroom\.(\w+)\.(\w+)$", NAMES_FILE.read_text(), re.MULTILINE
)
# A regular expression for the names of the TypeScript tests that `make test` runs.
_FAST_TEST_NAMES = (
    "a file is uploaded|an error has its code|each operation is a method|iteration continues"
)


@pytest.fixture(scope="module")
def typescript_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the built TypeScript package and its tests, which import it by name."""
    project = build_typescript(tmp_path_factory.mktemp("clients"))
    shutil.copytree(TESTS_FOLDER, project / "tests")
    return project


@pytest.fixture
def api_details(stack: Stack, owner: Owner, tmp_path: Path) -> dict[str, Any]:
    """The API's URL, an owner's id and key, and a photo's path, as input of JavaScript programs."""
    photo_path = tmp_path / "photo.jpg"
    photo_path.write_bytes(photo())
    return {
        "api_url": stack.api_url,
        "key": owner.key,
        "user_id": owner.user_id,
        "photo": str(photo_path),
    }


@pytest.fixture
def javascript_input(
    stack: Stack, network_url: str, owner: Owner, api_details: dict[str, Any], pressroom: Any
) -> dict[str, Any]:
    """All input of the JavaScript tests, which they read from the variable TEST_INPUT."""
    program = oauth.register(stack, scopes=(Scope.CREDIT_READ, Scope.ATTACHMENT))
    return api_details | {
        "network": network_url,
        "session": oauth.log_in(stack, owner).browser.cookies["pressroom_session"],
        "program": {
            "client_id": program.client_id,
            "secret": program.secret,
            "redirect_uri": program.redirect_uri,
        },
        "lists": building.create_items(pressroom),
        "messages": signed_messages.build_messages(),
        "example": {
            "secret": signed_messages.SECRET,
            "headers": signed_messages.SPECIFICATION_HEADERS,
            "body": signed_messages.BODY.decode(),
        },
    }


@pytest.mark.tier("fast")
def test_built_typescript_client_calls_the_api(
    request: pytest.FixtureRequest, api_details: dict[str, Any]
) -> None:
    if not are_built():
        skip_or_fail("`make clients` builds the TypeScript client from this document")
    project: Path = request.getfixturevalue("typescript_project")
    output = _run_node(
        *("--test", f"--test-name-pattern={_FAST_TEST_NAMES}", "tests/client.test.mjs"),
        folder=project,
        TEST_INPUT=json.dumps(api_details),
    )
    assert f"# pass {1 + _FAST_TEST_NAMES.count('|')}\n" in output


@pytest.mark.parametrize("name", sorted(each.name for each in TESTS_FOLDER.glob("*.test.mjs")))
def test_typescript_client_passes_its_own_tests(
    name: str, typescript_project: Path, javascript_input: dict[str, Any]
) -> None:
    _run_node(
        "--test",
        f"tests/{name}",
        folder=typescript_project,
        TEST_INPUT=json.dumps(javascript_input),
    )


def test_typescript_client_readme_examples_work_as_written(
    typescript_project: Path, stack: Stack, owner: Owner, tmp_path: Path
) -> None:
    readme_examples.write_files(tmp_path)
    script = readme_examples.build_script(files.TYPESCRIPT / "README.md", "js", stack, owner)
    (tmp_path / "examples.mjs").write_text(script)
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "node_modules" / "pressroom-client").symlink_to(typescript_project)
    output = _run_node("examples.mjs", folder=tmp_path)
    assert readme_examples.LAST_LINE in output


def test_every_example_in_the_typescript_readme_compiles_strictly(typescript_project: Path) -> None:
    blocks = markdown.blocks(files.TYPESCRIPT / "README.md")
    # The blocks that a test runs are one program. Each other block is a program of its own.
    programs = ["".join(block.text for block in blocks if block.is_run)]
    programs += [block.text for block in blocks if not block.is_run]
    folder = typescript_project / "readme"
    folder.mkdir()
    for number, program in enumerate(programs):
        (folder / f"example{number}.ts").write_text(program)
    names = sorted(f"readme/{file.name}" for file in folder.iterdir())
    assert len(names) > 1
    _compile(typescript_project, "tests/ambient.d.ts", *names)


def test_typescript_client_types_match_the_api(typescript_project: Path) -> None:
    _compile(typescript_project, "tests/usage.ts")


def test_editor_shows_the_names_of_typescript_types(typescript_project: Path) -> None:
    output = _run_node("tests/hover.mjs", "tests/hovers.ts", folder=typescript_project)
    lines = output.splitlines()
    assert "const list: MailingList" in lines
    assert "const lists: Page<MailingList>" in lines
    assert "const created: MailingList" in lines
    assert "const progress: JobProgress" in lines
    assert "const endpoints: WebhookEndpointRecord[]" in lines
    assert "    body: ListChanges;" in lines
    assert "    body: ConsumeCreditsBody;" in lines


def test_typescript_client_still_exports_every_name_of_the_last_release(
    typescript_project: Path,
) -> None:
    document = json.loads((RELEASES_FOLDER / f"{VERSIONS[0]}.json").read_text())
    lines = ['import type { components, Pressroom } from "pressroom-client";']
    for operation in read_operations(document):
        name = operation.camel_name
        lines.append(f'export type Method{name} = Pressroom["{name}"];')
    for resource, method in RELEASED_METHODS:
        path = f'["{to_camel_case(resource)}"]["{to_camel_case(method)}"]'
        lines.append(f"export type {resource}_{method} = Pressroom{path};")
    for name in document["components"]["schemas"]:
        lines.append(f'export type Schema{name} = components["schemas"]["{name}"];')
        if name != "Pagination":
            lines.append(f'export type {{ {name} }} from "pressroom-client";')
    (typescript_project / "tests" / "members.ts").write_text("\n".join(lines))
    _compile(typescript_project, "tests/released.ts", "tests/members.ts")


def test_deprecated_operations_are_only_methods_of_the_typescript_client(
    typescript_project: Path,
) -> None:
    declarations = (typescript_project / "dist" / "generated" / "operations.d.ts").read_text()
    resources, _, client = declarations.partition("export declare class Operations")
    comments = dict(re.findall(r"/\*\*((?:(?!\*/).)*)\*/\s+(\w+)\(", client, re.DOTALL))
    names = {comment_name for comment, comment_name in comments.items() if "@deprecated" in comment}
    assert names == {to_camel_case(name) for name in DEPRECATED_OPERATIONS}
    assert [name for name in names if f" {name}(" in resources] == []


def test_typescript_package_is_publishable_and_has_no_dependencies(
    typescript_project: Path,
) -> None:
    package = json.loads((typescript_project / "package.json").read_text())
    assert "dependencies" not in package
    run_tool(typescript_project, "publint", "--strict")
    run_tool(typescript_project, "attw", "--pack", ".", "--profile", "esm-only")


@pytest.mark.tier("fast")
def test_npm_lock_file_pins_each_development_tool_without_a_registry() -> None:
    lock = json.loads((files.TYPESCRIPT / "package-lock.json").read_text())
    root, *packages = lock["packages"].values()
    assert {"openapi-typescript", "@hey-api/openapi-ts"} <= root["devDependencies"].keys()
    assert [
        version for version in root["devDependencies"].values() if not version[0].isdigit()
    ] == []
    assert [
        package for package in packages if "resolved" in package or "integrity" not in package
    ] == []


def test_typescript_client_has_a_method_for_every_operation(typescript_project: Path) -> None:
    declarations = (typescript_project / "dist" / "generated" / "operations.d.ts").read_text()
    names = {operation.camel_name for operation in read_operations(openapi_document())}
    assert {name for name in names if f"\n    {name}(" not in declarations} == set()


@pytest.mark.parametrize(
    ("arguments", "generated_file"),
    [
        (("openapi-typescript", "{document}", "--output", "other/types.ts"), "other/types.ts"),
        (
            (
                *("openapi-ts", "--input", "{document}", "--output", "other"),
                *("--plugins", "@hey-api/client-fetch", "@hey-api/sdk"),
            ),
            "other/sdk.gen.ts",
        ),
    ],
    ids=["openapi-typescript", "hey-api"],
)
def test_third_party_generator_reads_the_document_without_a_warning(
    arguments: tuple[str, ...], generated_file: str, typescript_project: Path, tmp_path: Path
) -> None:
    document = write_document(tmp_path)
    tool, *options = (argument.format(document=document) for argument in arguments)
    completed = subprocess.run(
        [typescript_project / "node_modules" / ".bin" / tool, *options],
        check=True,
        cwd=typescript_project,
        capture_output=True,
        text=True,
    )
    # The generators write warnings to the error stream, and everything else to the output stream.
    assert completed.stderr == ""
    assert completed.stdout != ""
    _compile(typescript_project, generated_file, moduleResolution="bundler", module="esnext")


def _compile(typescript_project: Path, *names: str, **options: str) -> None:
    """Check the types of files in the project as strictly as the types of the package."""
    config = typescript_project / "tsconfig.more.json"
    compiler_options = {"noEmit": True, "noUnusedLocals": False, "rootDir": ".", **options}
    content = {
        "extends": "./tsconfig.json",
        "compilerOptions": compiler_options,
        "files": names,
        "include": [],
    }
    config.write_text(json.dumps(content))
    run_tool(typescript_project, "tsc", "--project", config.name)


def _run_node(*arguments: str, folder: Path, **environment: str) -> str:
    node = javascript_client.find_node(files.TYPESCRIPT, "the TypeScript client")
    variables = {"PATH": os.environ["PATH"], **environment}
    return run_program(node, *arguments, folder=folder, environment=variables)
