import json
import tomllib

import pytest

from tests.command_line import option, require_accepted
from tests.deployment import files

pytestmark = pytest.mark.check

# Only the development stack stays out of the image; the rest is installed.
NOT_SHIPPED = {"devstack"}


def _copied() -> list[str]:
    copies = [each.text.split() for each in files.dockerfile() if each.name == "COPY"]
    return [
        source for words in copies if not words[0].startswith("--from") for source in words[:-1]
    ]


def test_build_is_given_what_is_copied_and_nothing_else() -> None:
    lines = (files.ROOT / ".dockerignore").read_text().splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    let_through = {rule.removeprefix("!") for rule in rules if rule.startswith("!")}
    assert let_through == set(_copied())
    assert all((files.ROOT / source).exists() for source in _copied())


def test_every_package_of_ours_is_installed_but_the_development_stack() -> None:
    project = tomllib.loads((files.ROOT / "pyproject.toml").read_text())
    patterns = project["tool"]["setuptools"]["packages"]["find"]["include"]
    rooms = {pattern.removesuffix("*") for pattern in patterns}
    there = {room for room in rooms if (files.ROOT / room / "__init__.py").exists()}
    assert {source.rstrip("/") for source in _copied() if source.endswith("/")} == (
        there - NOT_SHIPPED
    )


def test_base_image_and_dependencies_are_pinned() -> None:
    default = next(each.text for each in files.dockerfile() if each.name == "ARG")
    name, _, image = default.partition("=")
    assert image.partition(":")[2] not in ("", "latest")
    stages = [each.text.split()[0] for each in files.dockerfile() if each.name == "FROM"]
    assert set(stages) == {f"${{{name}}}", "image"}
    installs = [
        command
        for each in files.dockerfile()
        if each.name == "RUN"
        for command in each.text.split("&&")
        if " install " in command and "pip" in command
    ]
    assert len(installs) == 4
    for command in installs:
        assert "--require-hashes" in command or "--no-deps --no-index" in command


def test_its_command_is_the_api_on_the_port_that_its_health_check_asks() -> None:
    """A user without rights runs it."""
    [user] = [each.text for each in files.dockerfile() if each.name == "USER"]
    assert int(user.partition(":")[0]) >= 1000
    command = json.loads(_last("CMD"))
    require_accepted(command)
    assert command[1] == "serve"
    port = option(command, "--port")
    assert _last("EXPOSE") == port
    check = json.loads(_last("HEALTHCHECK").partition(" CMD ")[2])
    assert check[:2] == ["python", "-c"]
    assert f"127.0.0.1:{port}/healthz" in check[2]
    compile(check[2], "HEALTHCHECK", "exec")


def _last(name: str) -> str:
    return [each.text for each in files.last_stage() if each.name == name][-1]
