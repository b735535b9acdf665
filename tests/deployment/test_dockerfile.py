import re

import pytest

from core.languages.reader_languages import list_languages
from tests.support.deployment import files

pytestmark = pytest.mark.tier("check")


def _copied_sources() -> list[str]:
    copies = [each.text.split() for each in files.dockerfile() if each.name == "COPY"]
    return [
        source for words in copies if not words[0].startswith("--from") for source in words[:-1]
    ]


def test_docker_build_context_contains_only_copied_files() -> None:
    lines = (files.ROOT / ".dockerignore").read_text().splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    included = {rule.removeprefix("!") for rule in rules if rule.startswith("!")}
    assert included == set(_copied_sources())
    assert all((files.ROOT / source).exists() for source in _copied_sources())


def test_docker_base_image_and_dependencies_are_pinned() -> None:
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


def test_docker_image_keeps_locale_data_for_every_supported_language() -> None:
    [command] = [each.text for each in files.dockerfile() if "locale-data" in each.text]
    kept_languages = re.findall(r"\b[a-z]{2,3}\b(?=\\)", command)
    assert "root" in command
    assert {each.partition("-")[0] for each in list_languages()} <= set(kept_languages)
