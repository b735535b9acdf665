import re
import shlex
from pathlib import Path

import pytest

from benchmarks.code_metrics.product_modules import PACKAGES
from cli import settings_reference
from cli.jobs import register_kinds
from core.settings import Settings
from core.settings.given_settings import FILE_SUFFIX, PREFIX, is_secret, variable_of
from services.jobs import maintenance
from tests.support.commands.command_line import require_accepted, require_known
from tests.support.documents import markdown

pytestmark = pytest.mark.tier("check")

# Documents may name these environment variables, although docs/settings.md doesn't list them.
NOT_SETTINGS = {
    "PRESSROOM_HOME",
    "PRESSROOM_IMAGE",
    "PRESSROOM_KEY",
    "PRESSROOM_SIZE",
    "PRESSROOM_URL",
}

each_document = pytest.mark.parametrize("document", markdown.DOCUMENTS, ids=markdown.name_of)


@each_document
def test_links_in_documents_lead_to_existing_targets(document: Path) -> None:
    for link in markdown.links(document):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (document.parent / path) if path else document
        assert target.exists(), link
        if anchor:
            page = target / "README.md" if target.is_dir() else target
            assert anchor in markdown.anchors(page), link


@each_document
def test_commands_in_shell_blocks_of_documents_are_valid(document: Path) -> None:
    for line in markdown.shell_lines(document):
        words = shlex.split(line, comments=True)
        if "pressroom" in words and "pg_dump" not in words:
            require_accepted(words[words.index("pressroom") :])
        elif words[:1] == ["make"]:
            targets = [word for word in words[1:] if "=" not in word]
            assert set(targets) <= _make_targets(), line


@each_document
def test_commands_in_sentences_of_documents_exist(document: Path) -> None:
    for code in markdown.inline_code(document):
        words = code.split()
        if words[0] == "pressroom" and len(words) > 1:
            require_known(words)
        elif words[0] == "make" and len(words) > 1:
            assert words[1] in _make_targets(), code


@each_document
def test_files_and_folders_named_in_documents_exist(document: Path) -> None:
    for code in markdown.inline_code(document):
        if re.fullmatch(rf"({'|'.join(PACKAGES)})/[\w./-]*(/|\.\w+)", code):
            assert (markdown.ROOT / code).exists(), code


@each_document
def test_settings_named_in_documents_exist(document: Path) -> None:
    named = set(re.findall(rf"{PREFIX}[A-Z0-9_]*[A-Z0-9]", document.read_text()))
    assert named <= _settings() | NOT_SETTINGS


def test_settings_reference_page_is_up_to_date() -> None:
    """To update the page, run ``python -m cli.settings_reference > docs/settings.md``."""
    assert (markdown.ROOT / "docs" / "settings.md").read_text() == settings_reference.build_page()


def test_table_of_maintenance_tasks_is_complete() -> None:
    register_kinds()
    page = (markdown.ROOT / "docs" / "day-two.md").read_text()
    _, _, page = page.partition("## Maintenance\n")
    page, _, _ = page.partition("\n```")
    named = re.findall(r"^\| `([a-z_.]+)` \| \d", page, re.MULTILINE)
    # Other tests of the same process register maintenance tasks of their own.
    kinds = [
        kind for kind in maintenance.list_kinds() if kind.run.__module__.startswith("services.")
    ]
    assert sorted(named) == sorted(kind.name for kind in kinds)


def _settings() -> set[str]:
    """Return the environment variables of all settings and of the paths of secret files."""
    fields = Settings.model_fields
    file_variables = {variable_of(name) + FILE_SUFFIX for name in fields if is_secret(fields[name])}
    return file_variables | set(map(variable_of, fields))


def _make_targets() -> set[str]:
    makefile = (markdown.ROOT / "Makefile").read_text()
    return set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
