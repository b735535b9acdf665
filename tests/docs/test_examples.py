"""The blocks marked `<!-- run -->` are run as a reader would, against the test stack.

Blocks of one document and language are one script, so that a later one can use what an earlier one
has set. The shell's first lines set API and KEY for the other languages too. The blocks of
docs/sending.md are files, which test_sending.py runs.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from devstack.harness.stack import Owner, Stack
from tests.support.documents import markdown
from tests.support.images.pictures import photo
from tests.support.prerequisites import pass_over

# How a reader runs each language. In JavaScript a module waits at its top level.
_RUNS = {
    "sh": ["bash", "-euo", "pipefail", "-c"],
    "python": [sys.executable, "-c"],
    "js": ["node", "--input-type=module", "-e"],
}


def _scripts() -> dict[tuple[str, str], str]:
    found: dict[tuple[str, str], list[str]] = {}
    for document in markdown.DOCUMENTS:
        if document.name == "sending.md":
            continue
        for block in markdown.blocks(document):
            if block.is_run:
                name = (markdown.name_of(document), block.language)
                found.setdefault(name, []).append(block.text)
    return {name: "\n".join(texts) for name, texts in found.items()}


_SCRIPTS = _scripts()


@pytest.fixture
def run_directory(tmp_path: Path, stack: Stack, owner: Owner) -> Path:
    """A directory with the files that `make run` creates for the examples in the documents."""
    home = tmp_path / ".pressroom"
    home.mkdir()
    run = {"api_url": stack.api_url, "demo": {"api_key": owner.key}}
    (home / "run.json").write_text(json.dumps(run))
    (home / "sample.jpg").write_bytes(photo())
    # Without it curl counts an error as a success.
    (tmp_path / ".curlrc").write_text("fail-with-body\n")
    return tmp_path


def test_readme_and_api_pages_have_runnable_examples() -> None:
    quickstart = {("docs/quickstart.md", language) for language in _RUNS}
    quickstart |= {("docs/start.md", "sh"), ("docs/start.md", "python")}
    others = ("README", "docs/conventions", "docs/subscribers", "docs/images", "docs/credits")
    assert set(_SCRIPTS) >= {*quickstart, *((f"{page}.md", "sh") for page in others)}
    assert {language for _, language in _SCRIPTS} == set(_RUNS)


@pytest.mark.parametrize(("name", "language"), _SCRIPTS)
def test_document_examples_work_as_written(
    name: str, language: str, run_directory: Path, stack: Stack, owner: Owner
) -> None:
    program = {"sh": "curl", "js": "node"}.get(language)
    if program and shutil.which(program) is None:
        pass_over(f"the examples need {program}")
    known = {} if language == "sh" else {"API": stack.api_url, "KEY": owner.key}
    done = subprocess.run(
        [*_RUNS[language], _SCRIPTS[name, language]],
        check=False,
        cwd=run_directory,
        env={
            "PATH": os.environ["PATH"],
            "CURL_HOME": str(run_directory),
            "HOME": str(run_directory),
            **known,
        },
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    if language == "sh":
        assert '"data":' in done.stdout
    if name == "docs/quickstart.md" and language != "sh":
        assert "reader@example.com pending" in done.stdout
        assert f"{stack.api_url}/media/" in done.stdout
    if name == "docs/quickstart.md" and language == "js":
        assert "succeeded" in done.stdout
