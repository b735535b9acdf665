"""The TypeScript client's tests are its own, run by Node.js against the stack."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from clients.generator import files
from clients.generator.operations import read_operations
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
from tests.support.http.openapi import openapi_document
from tests.support.images.pictures import photo
from tests.support.people import oauth
from tests.support.prerequisites import pass_over

pytestmark = pytest.mark.tier("clients")

TESTS = Path(__file__).parent / "typescript"
# Of the package's tests, those that `make test` runs.
_FEW = "a file is uploaded|an error has its code|iterating goes on"


@pytest.fixture(scope="module")
def typescript_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the built TypeScript package and its tests, which import it by name."""
    built = build_typescript(tmp_path_factory.mktemp("clients"))
    shutil.copytree(TESTS, built / "tests")
    return built


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
    """All input of the JavaScript tests, which they read from the environment variable GIVEN."""
    program = oauth.register(stack, scopes=(Scope.CREDIT_READ, Scope.ATTACHMENT))
    return api_details | {
        "network": network_url,
        "session": oauth.log_in(stack, owner).browser.cookies["pressroom_session"],
        "program": {
            "client_id": program.client_id,
            "secret": program.secret,
            "redirect_uri": program.redirect_uri,
        },
        "lists": building.lists_of_a_busy_owner(pressroom),
        "messages": signed_messages.messages(),
        "example": {
            "secret": signed_messages.SECRET,
            "headers": signed_messages.SPECIFIED,
            "body": signed_messages.BODY.decode(),
        },
    }


@pytest.mark.tier("fast")
def test_built_typescript_client_calls_the_api(
    request: pytest.FixtureRequest, api_details: dict[str, Any]
) -> None:
    if not are_built():
        pass_over("`make clients` builds the TypeScript client from this document")
    project: Path = request.getfixturevalue("typescript_project")
    said = _run_node(
        *("--test", f"--test-name-pattern={_FEW}", "tests/client.test.mjs"),
        folder=project,
        GIVEN=json.dumps(api_details),
    )
    assert f"# pass {1 + _FEW.count('|')}\n" in said


@pytest.mark.parametrize("name", sorted(each.name for each in TESTS.glob("*.test.mjs")))
def test_typescript_client_passes_its_own_tests(
    name: str, typescript_project: Path, javascript_input: dict[str, Any]
) -> None:
    _run_node(
        "--test", f"tests/{name}", folder=typescript_project, GIVEN=json.dumps(javascript_input)
    )


def test_typescript_client_readme_examples_work_as_written(
    typescript_project: Path, stack: Stack, owner: Owner, tmp_path: Path
) -> None:
    readme_examples.write_files(tmp_path)
    script = readme_examples.script(files.TYPESCRIPT / "README.md", "js", stack, owner)
    (tmp_path / "examples.mjs").write_text(script)
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "node_modules" / "pressroom-client").symlink_to(typescript_project)
    said = _run_node("examples.mjs", folder=tmp_path)
    assert readme_examples.LAST_WORD in said


def test_typescript_client_types_match_the_api(typescript_project: Path) -> None:
    shutil.copy(TESTS / "usage.ts", typescript_project / "tests" / "usage.ts")
    _compile(typescript_project, "tests/usage.ts", {"rootDir": "."})


def test_typescript_package_is_publishable_and_has_no_dependencies(
    typescript_project: Path,
) -> None:
    described = json.loads((typescript_project / "package.json").read_text())
    assert "dependencies" not in described
    run_tool(typescript_project, "publint", "--strict")
    run_tool(typescript_project, "attw", "--pack", ".", "--profile", "esm-only")


def test_typescript_client_has_a_method_for_every_operation(typescript_project: Path) -> None:
    declared = (typescript_project / "dist" / "generated" / "operations.d.ts").read_text()
    names = {operation.camel_name for operation in read_operations(openapi_document())}
    assert {name for name in names if f"\n    {name}(" not in declared} == set()


def test_third_party_generator_makes_a_typescript_client_that_compiles(
    typescript_project: Path, tmp_path: Path
) -> None:
    options = (
        "--input",
        str(write_document(tmp_path)),
        "--output",
        str(typescript_project / "other"),
    )
    run_tool(
        typescript_project, "openapi-ts", *options, "--plugins", "@hey-api/client-fetch", "--silent"
    )
    entry = "other/sdk.gen.ts"
    assert (typescript_project / entry).exists()
    _compile(
        typescript_project,
        entry,
        {"rootDir": ".", "moduleResolution": "bundler", "module": "esnext"},
    )


def _compile(typescript_project: Path, entry: str, options: dict[str, str]) -> None:
    """Check the types of one more file, as strictly as those of the package."""
    config = typescript_project / "tsconfig.more.json"
    checked = {"noEmit": True, "noUnusedLocals": False, **options}
    config.write_text(
        json.dumps(
            {
                "extends": "./tsconfig.json",
                "compilerOptions": checked,
                "files": [entry],
                "include": [],
            }
        )
    )
    run_tool(typescript_project, "tsc", "--project", config.name)


def _run_node(*words: str, folder: Path, **environment: str) -> str:
    node = javascript_client.node(files.TYPESCRIPT, "the TypeScript client")
    given = {"PATH": os.environ["PATH"], **environment}
    return run_program(node, *words, folder=folder, environment=given)
