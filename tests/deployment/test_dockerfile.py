import json
import tomllib
from pathlib import PurePosixPath

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


def test_every_file_it_copies_exists_and_is_let_through_to_the_build() -> None:
    let_through = {
        line.removeprefix("!")
        for line in (files.ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    assert _copied()
    for source in _copied():
        assert (files.ROOT / source).exists(), source
        assert source in let_through


def test_build_is_given_nothing_but_what_is_copied() -> None:
    lines = (files.ROOT / ".dockerignore").read_text().splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    assert {rule.removeprefix("!") for rule in rules if rule.startswith("!")} == set(_copied())


def test_every_package_of_ours_is_installed_but_the_development_stack() -> None:
    project = tomllib.loads((files.ROOT / "pyproject.toml").read_text())
    patterns = project["tool"]["setuptools"]["packages"]["find"]["include"]
    rooms = {pattern.removesuffix("*") for pattern in patterns}
    there = {room for room in rooms if (files.ROOT / room / "__init__.py").exists()}
    assert {source.rstrip("/") for source in _copied() if source.endswith("/")} == (
        there - NOT_SHIPPED
    )


def test_dependencies_come_from_the_pins_with_their_hashes() -> None:
    installs = [
        command
        for each in files.dockerfile()
        if each.name == "RUN"
        for command in each.text.split("&&")
        if " install " in command and "pip" in command
    ]
    assert len(installs) == 3
    for command in installs:
        assert "--require-hashes" in command or "--no-deps --no-index" in command


def test_what_is_shipped_names_no_time_of_the_build() -> None:
    runs = [each.text for each in files.dockerfile() if each.name == "RUN"]
    # Only what builds our wheel may compile: it stays out of the image.
    installs = [run for run in runs if "pip --python /opt/pressroom/bin/python install" in run]
    assert all("install --no-compile" in run for run in installs)
    # Nothing can be compiled where the image runs, so all of it is there.
    assert any("compileall" in run and "unchecked-hash /opt/pressroom" in run for run in runs)
    environment = " ".join(each.text for each in files.dockerfile() if each.name == "ENV")
    assert "SOURCE_DATE_EPOCH=" in environment
    assert "PYTHONHASHSEED=" in environment
    # It notes the day.
    assert not any("useradd" in run for run in runs)


def test_base_image_is_pinned_by_a_tag_and_the_same_in_each_stage() -> None:
    default = next(each.text for each in files.dockerfile() if each.name == "ARG")
    name, _, image = default.partition("=")
    assert image.partition(":")[2] not in ("", "latest")
    stages = [each.text.split()[0] for each in files.dockerfile() if each.name == "FROM"]
    assert set(stages) == {f"${{{name}}}"}


def test_it_does_not_run_as_root() -> None:
    users = [each.text for each in files.last_stage() if each.name == "USER"]
    assert users
    assert int(users[-1].partition(":")[0]) >= 1000


def test_its_command_is_the_api_on_the_port_that_its_health_check_asks() -> None:
    command = json.loads(_last("CMD"))
    require_accepted(command)
    assert command[1] == "serve"
    port = option(command, "--port")
    assert _last("EXPOSE") == port
    check = json.loads(_last("HEALTHCHECK").partition(" CMD ")[2])
    assert check[:2] == ["python", "-c"]
    assert f"127.0.0.1:{port}/healthz" in check[2]
    compile(check[2], "HEALTHCHECK", "exec")


def test_what_it_takes_from_the_build_is_on_the_path() -> None:
    taken = next(each.text.split()[-1] for each in files.last_stage() if each.name == "COPY")
    path = next(each.text for each in files.last_stage() if each.name == "ENV")
    assert f"PATH={PurePosixPath(taken) / 'bin'}:$PATH" in path


def _last(name: str) -> str:
    return [each.text for each in files.last_stage() if each.name == name][-1]
