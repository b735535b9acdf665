"""The TypeScript client's tests are its own, run by Node.js against the stack."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from clients.generator import files
from clients.generator.operations import operations
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
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as `make clients` builds it, with its tests: they import it by its name."""
    built = build_typescript(tmp_path_factory.mktemp("clients"))
    shutil.copytree(TESTS, built / "tests")
    return built


@pytest.fixture
def owned(stack: Stack, owner: Owner, tmp_path: Path) -> dict[str, Any]:
    """What the client's tests are told of the API and an owner."""
    photo_path = tmp_path / "photo.jpg"
    photo_path.write_bytes(photo())
    return {
        "api_url": stack.api_url,
        "key": owner.key,
        "user_id": owner.user_id,
        "photo": str(photo_path),
    }


@pytest.fixture
def given(
    stack: Stack, network: str, owner: Owner, owned: dict[str, Any], pressroom: Any
) -> dict[str, Any]:
    """All that they are told."""
    program = oauth.register(stack, scopes=(Scope.CREDIT_READ, Scope.ATTACHMENT))
    return owned | {
        "network": network,
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
def test_the_package_that_make_clients_builds_calls_the_api(
    request: pytest.FixtureRequest, owned: dict[str, Any]
) -> None:
    if not are_built():
        pass_over("`make clients` builds the TypeScript client from this document")
    project: Path = request.getfixturevalue("project")
    said = _run_node(
        *("--test", f"--test-name-pattern={_FEW}", "tests/client.test.mjs"),
        folder=project,
        GIVEN=json.dumps(owned),
    )
    assert f"# pass {1 + _FEW.count('|')}\n" in said


@pytest.mark.parametrize("name", sorted(each.name for each in TESTS.glob("*.test.mjs")))
def test_the_typescript_client_passes_its_tests(
    name: str, project: Path, given: dict[str, Any]
) -> None:
    _run_node("--test", f"tests/{name}", folder=project, GIVEN=json.dumps(given))


def test_the_examples_of_its_readme_work_as_they_are_written(
    project: Path, stack: Stack, owner: Owner, tmp_path: Path
) -> None:
    readme_examples.write_files(tmp_path)
    script = readme_examples.script(files.TYPESCRIPT / "README.md", "js", stack, owner)
    (tmp_path / "examples.mjs").write_text(script)
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "node_modules" / "pressroom-client").symlink_to(project)
    said = _run_node("examples.mjs", folder=tmp_path)
    assert readme_examples.LAST_WORD in said


def test_the_types_say_what_the_api_takes_and_answers(project: Path) -> None:
    shutil.copy(TESTS / "usage.ts", project / "tests" / "usage.ts")
    _compile(project, "tests/usage.ts", {"rootDir": "."})


def test_the_package_is_sound_for_those_who_install_it(project: Path) -> None:
    described = json.loads((project / "package.json").read_text())
    assert "dependencies" not in described
    run_tool(project, "publint", "--strict")
    run_tool(project, "attw", "--pack", ".", "--profile", "esm-only")


def test_every_operation_has_a_method(project: Path) -> None:
    declared = (project / "dist" / "generated" / "operations.d.ts").read_text()
    names = {operation.camel_name for operation in operations(openapi_document())}
    assert {name for name in names if f"\n    {name}(" not in declared} == set()


def test_another_generator_makes_a_client_that_compiles(project: Path, tmp_path: Path) -> None:
    options = ("--input", str(write_document(tmp_path)), "--output", str(project / "other"))
    run_tool(project, "openapi-ts", *options, "--plugins", "@hey-api/client-fetch", "--silent")
    entry = "other/sdk.gen.ts"
    assert (project / entry).exists()
    _compile(project, entry, {"rootDir": ".", "moduleResolution": "bundler", "module": "esnext"})


def _compile(project: Path, entry: str, options: dict[str, str]) -> None:
    """Check the types of one more file, as strictly as those of the package."""
    config = project / "tsconfig.more.json"
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
    run_tool(project, "tsc", "--project", config.name)


def _run_node(*words: str, folder: Path, **environment: str) -> str:
    node = javascript_client.node(files.TYPESCRIPT, "the TypeScript client")
    given = {"PATH": os.environ["PATH"], **environment}
    return run_program(node, *words, folder=folder, environment=given)
