"""Tests that run the blocks marked `<!-- run -->` in the documents, against the test stack.

All blocks of one document and language form one script, so that later blocks can use variables of
earlier blocks. Shell blocks set the variables API and KEY themselves. For blocks in other
languages, the tests set API and KEY. Blocks of docs/sending.md and docs/journeys.md are excluded,
because test_sending.py and test_journeys.py save the blocks as files and run the files.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from devstack.harness.stack import Owner, Stack
from tests.support.documents import markdown
from tests.support.documents.reader_folder import reader_folder
from tests.support.prerequisites import skip_or_fail

# Maps each programming language to the command that runs a script in this language. Only a
# JavaScript module can use `await` outside of functions.
_COMMANDS = {
    "sh": ["bash", "-euo", "pipefail", "-c"],
    "python": [sys.executable, "-c"],
    "js": ["node", "--input-type=module", "-e"],
}
# Maps an example to the texts that it prints, with the URL of the API as API. All other shell
# examples print the JSON of a response.
_PRINTED_TEXTS = {
    ("README.md", "sh"): ("API/media/",),
    ("docs/filters.md", "sh"): ("eva@example.com ada@example.com\nben@example.com\n",),
    ("docs/quickstart.md", "js"): ("reader@example.com pending", "API/media/", "succeeded"),
    ("docs/quickstart.md", "python"): ("reader@example.com pending", "API/media/"),
    ("docs/senders.md", "python"): ("1\n",),
    ("docs/start.md", "python"): ("subscription.created ",),
    ("docs/webhooks.md", "sh"): ("whsec_", '"type":"webhook.test"'),
}


def _scripts() -> dict[tuple[str, str], str]:
    blocks: dict[tuple[str, str], list[str]] = {}
    for document in markdown.DOCUMENTS:
        if document.name in {"journeys.md", "sending.md"}:
            continue
        for block in markdown.blocks(document):
            if block.is_run:
                name = (markdown.name_of(document), block.language)
                blocks.setdefault(name, []).append(block.text)
    return {name: "\n".join(texts) for name, texts in blocks.items()}


_SCRIPTS = _scripts()


@pytest.fixture
def run_directory(tmp_path: Path, stack: Stack, owner: Owner) -> Iterator[Path]:
    with reader_folder(tmp_path, stack, owner.key) as folder:
        yield folder


def test_readme_and_api_pages_have_runnable_examples() -> None:
    quickstart = {("docs/quickstart.md", language) for language in _COMMANDS}
    quickstart |= {("docs/start.md", "sh"), ("docs/start.md", "python")}
    quickstart |= {("docs/senders.md", "python"), ("docs/webhooks.md", "python")}
    shell_pages = (
        *("README", "docs/conventions", "docs/subscribers", "docs/images", "docs/credits"),
        *("docs/filters", "docs/webhooks", "docs/senders", "docs/composer"),
    )
    assert set(_SCRIPTS) >= {*quickstart, *((f"{page}.md", "sh") for page in shell_pages)}
    assert {language for _, language in _SCRIPTS} == set(_COMMANDS)


@pytest.mark.parametrize(("name", "language"), _SCRIPTS)
def test_document_examples_work_as_written(
    name: str, language: str, run_directory: Path, stack: Stack, owner: Owner
) -> None:
    program = {"sh": "curl", "js": "node"}.get(language)
    if program and shutil.which(program) is None:
        skip_or_fail(f"the examples need {program}")
    variables = {} if language == "sh" else {"API": stack.api_url, "KEY": owner.key}
    completed = subprocess.run(
        [*_COMMANDS[language], _SCRIPTS[name, language]],
        check=False,
        cwd=run_directory,
        env={
            "PATH": os.environ["PATH"],
            "CURL_HOME": str(run_directory),
            "HOME": str(run_directory),
            **variables,
        },
        capture_output=True,
        text=True,
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr
    default_texts = ('"data":',) if language == "sh" else ()
    for text in _PRINTED_TEXTS.get((name, language), default_texts):
        assert text.replace("API", stack.api_url) in completed.stdout
