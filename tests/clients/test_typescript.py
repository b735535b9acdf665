"""The TypeScript client's tests are its own, run by Node.js against the stack."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from clients.generator import files
from clients.generator.operations import operations
from core.scopes import Scope
from tests import javascript_client, oauth
from tests.clients import lists, readme_examples, signed_messages
from tests.clients.building import build_typescript, run_tool
from tests.pictures import photo
from tests.stack import Owner, Stack

TESTS = Path(__file__).parent / "typescript"
_SECONDS = 100


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as it is built, with its tests: they import it by its name."""
    built = build_typescript(tmp_path_factory.mktemp("clients"))
    shutil.copytree(TESTS, built / "tests")
    return built


@pytest.fixture
def given(stack: Stack, network: str, owner: Owner, pressroom: Any, tmp_path: Path) -> str:
    """What the client's tests are told of the API and its people."""
    photo_path = tmp_path / "photo.jpg"
    photo_path.write_bytes(photo())
    program = oauth.register(stack, scopes=(Scope.CREDIT_READ, Scope.ATTACHMENT))
    told = {
        "api_url": stack.api_url,
        "network": network,
        "key": owner.key,
        "user_id": owner.user_id,
        "photo": str(photo_path),
        "session": oauth.log_in(stack, owner).browser.cookies["pressroom_session"],
        "program": {
            "client_id": program.client_id,
            "secret": program.secret,
            "redirect_uri": program.redirect_uri,
        },
        "lists": lists.lists_of_a_busy_owner(pressroom),
        "messages": signed_messages.messages(),
        "example": {
            "secret": signed_messages.SECRET,
            "headers": signed_messages.SPECIFIED,
            "body": signed_messages.BODY.decode(),
        },
    }
    return json.dumps(told)


@pytest.mark.parametrize("name", sorted(each.name for each in TESTS.glob("*.test.mjs")))
def test_the_typescript_client_passes_its_tests(name: str, project: Path, given: str) -> None:
    _run_node("--test", f"tests/{name}", folder=project, GIVEN=given)


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


@pytest.mark.slow
def test_the_types_say_what_the_api_takes_and_answers(project: Path) -> None:
    shutil.copy(TESTS / "usage.ts", project / "tests" / "usage.ts")
    _compile(project, "tests/usage.ts", {"rootDir": "."})


@pytest.mark.slow
def test_the_package_is_sound_for_those_who_install_it(project: Path) -> None:
    described = json.loads((project / "package.json").read_text())
    assert "dependencies" not in described
    run_tool(project, "publint", "--strict")
    run_tool(project, "attw", "--pack", ".", "--profile", "esm-only")


@pytest.mark.slow
def test_every_operation_has_a_method(project: Path) -> None:
    declared = (project / "dist" / "generated" / "operations.d.ts").read_text()
    names = {operation.camel_name for operation in operations(files.read_document())}
    assert {name for name in names if f"\n    {name}(" not in declared} == set()


@pytest.mark.slow
def test_another_generator_makes_a_client_that_compiles(project: Path, tmp_path: Path) -> None:
    options = ("--input", str(files.DOCUMENT), "--output", str(project / "other"))
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
    """Run Node.js; returns what it says. Fails with that too."""
    done = subprocess.run(
        [javascript_client.node(files.TYPESCRIPT, "the TypeScript client"), *words],
        check=False,
        cwd=folder,
        env={"PATH": os.environ["PATH"], **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_SECONDS,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout
