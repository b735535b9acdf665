"""The shell blocks marked `<!-- run -->` are run as a reader would, against the test stack.

Blocks of one document are one script, so that a later one can use what an earlier one has set.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.docs import markdown
from tests.pictures import photo
from tests.prerequisites import pass_over
from tests.stack import Owner, Stack

_SCRIPTS = {
    markdown.name_of(document): [block.text for block in markdown.blocks(document) if block.is_run]
    for document in markdown.DOCUMENTS
}


@pytest.fixture
def directory(tmp_path: Path, stack: Stack, owner: Owner) -> Path:
    """A directory that looks as it does while `make run` runs there."""
    home = tmp_path / ".pressroom"
    home.mkdir()
    run = {"api_url": stack.api_url, "demo": {"api_key": owner.key}}
    (home / "run.json").write_text(json.dumps(run))
    (home / "sample.jpg").write_bytes(photo())
    # Without it curl counts a refusal as a success.
    (tmp_path / ".curlrc").write_text("fail-with-body\n")
    return tmp_path


def test_readme_and_the_api_page_have_examples_to_run() -> None:
    assert {name for name, blocks in _SCRIPTS.items() if blocks} >= {"README.md", "docs/api.md"}


@pytest.mark.parametrize("name", [name for name, blocks in _SCRIPTS.items() if blocks])
def test_examples_work_as_they_are_written(name: str, directory: Path) -> None:
    if shutil.which("curl") is None:
        pass_over("the examples need curl")
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", "\n".join(_SCRIPTS[name])],
        check=False,
        cwd=directory,
        env={"PATH": os.environ["PATH"], "CURL_HOME": str(directory), "HOME": str(directory)},
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"data":' in done.stdout
