"""Tests of the files that set up a contributor's editor, commits and development container."""

import configparser
import json
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.repository.schemas import require_valid
from tests.support.repository.tracked_files import ROOT, list_tracked_files, run_git

DEVCONTAINER_SCHEMA = Path(__file__).with_name("devcontainer.schema.json")

pytestmark = pytest.mark.tier("check")

DEVCONTAINER = ".devcontainer/devcontainer.json"


def list_text_files() -> set[str]:
    """Return the tracked files with text. Empty files and binary files are missing."""
    return set(run_git("grep", "-lI", "--cached", "-e", "").splitlines())


@pytest.fixture(scope="module")
def editor_rules() -> configparser.ConfigParser:
    rules = configparser.ConfigParser()
    text = (ROOT / ".editorconfig").read_text()
    assert text.startswith("root = true\n"), "editors would also read files in parent folders"
    rules.read_string(f"[top]\n{text}")
    return rules


def test_editors_use_the_line_length_of_ruff(editor_rules: configparser.ConfigParser) -> None:
    ruff = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]
    assert editor_rules["*.py"].getint("max_line_length") == ruff["line-length"]


def test_editors_indent_only_those_files_by_tabs_that_contain_tabs(
    editor_rules: configparser.ConfigParser,
) -> None:
    assert editor_rules["*"]["indent_style"] == "space"
    # Python files can contain tabs in texts.
    indented = run_git("grep", "-lIP", r"^\t", "--", ":(exclude)*.py").split()
    names = {path.rpartition("/")[2] for path in indented}
    [tabs] = [each for each in editor_rules if editor_rules[each].get("indent_style") == "tab"]
    assert set(tabs.strip("{}").split(",")) == names


def test_text_files_end_with_a_newline_unless_they_are_vendored(
    editor_rules: configparser.ConfigParser,
) -> None:
    assert editor_rules["*"].getboolean("insert_final_newline")
    [vendored] = [
        each for each in editor_rules if editor_rules[each].get("insert_final_newline") == "unset"
    ]
    checked = list_text_files() - list_tracked_files(vendored)
    assert len(checked) > 1000
    assert {path for path in checked if not (ROOT / path).read_bytes().endswith(b"\n")} == set()


def test_text_files_have_unix_line_ends_and_no_spaces_at_line_ends(
    editor_rules: configparser.ConfigParser,
) -> None:
    assert editor_rules["*"]["end_of_line"] == "lf"
    assert editor_rules["*"].getboolean("trim_trailing_whitespace")
    grep = subprocess.run(
        ["git", "grep", "-lIP", r"[ \t\r]+$"], cwd=ROOT, check=False, capture_output=True, text=True
    )
    # git exits with code 1 if no line matches, and with a higher code after an error.
    assert (grep.returncode, grep.stdout) == (1, "")


def test_commit_hooks_run_commands_of_make_check() -> None:
    check = subprocess.run(
        ["make", "--dry-run", "check"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    [repository] = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert repository["repo"] == "local", "foreign hooks have other versions than .venv"
    for hook in repository["hooks"]:
        assert hook["entry"] in check.stdout.splitlines(), hook["id"]
        assert hook["language"] == "system", hook["id"]
        assert hook["pass_filenames"] is False, hook["id"]


def test_development_container_follows_its_schema() -> None:
    require_valid(DEVCONTAINER_SCHEMA, DEVCONTAINER)


def test_development_container_installs_what_ci_installs() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    needed = set(re.findall(r"missing\+=\(([\w-]+)\)", script))
    assert len(needed) > 5
    recipe = (ROOT / ".devcontainer" / read_devcontainer()["build"]["dockerfile"]).read_text()
    assert needed <= set(recipe.split())
    assert f"useradd --create-home --shell /bin/bash {read_devcontainer()['remoteUser']}" in recipe


def test_development_container_forwards_the_ports_of_make_run() -> None:
    supervision = (ROOT / "devstack" / "supervisor" / "supervision.py").read_text()
    ports = {int(port) for port in re.findall(r'read_port_setting\("\w+", (\d+)\)', supervision)}
    assert set(read_devcontainer()["forwardPorts"]) == ports
    assert {int(port) for port in read_devcontainer()["portsAttributes"]} == ports


def read_devcontainer() -> dict[str, Any]:
    document: dict[str, Any] = json.loads((ROOT / DEVCONTAINER).read_text())
    return document
