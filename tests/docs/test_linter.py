"""The linter of OpenAPI documents that most publishers use finds nothing in ours."""

import copy
import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.house.source import ROOT
from tests.javascript_client import node
from tests.openapi import Document, openapi_document

pytestmark = pytest.mark.check

FOLDER = ROOT / "tests" / "linter"


def found(document: Document, folder: Path) -> dict[str, int]:
    """How many errors and warnings the linter counts."""
    file = folder / "openapi.json"
    file.write_text(json.dumps(document))
    finished = subprocess.run(
        [
            *(node(FOLDER, "the document's linter"), "node_modules/@redocly/cli/bin/cli.js"),
            *("lint", str(file), "--config", "redocly.yaml", "--format", "json"),
        ],
        check=False,
        cwd=FOLDER,
        # It calls nobody.
        env=os.environ | {"REDOCLY_TELEMETRY": "off", "REDOCLY_SUPPRESS_UPDATE_NOTICE": "true"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert finished.stdout.startswith("{"), finished.stderr
    totals: dict[str, int] = json.loads(finished.stdout)["totals"]
    assert (finished.returncode == 0) == (totals["errors"] == 0)
    return totals


def test_the_linter_finds_nothing_in_the_document(tmp_path: Path) -> None:
    assert found(openapi_document(), tmp_path) == {"errors": 0, "warnings": 0, "ignored": 0}


def test_the_linter_would_find_an_example_that_breaks_its_schema(tmp_path: Path) -> None:
    document = copy.deepcopy(openapi_document())
    [name, *_] = document["components"]["examples"]
    del document["components"]["examples"][name]["value"]["request_id"]
    assert found(document, tmp_path)["errors"] > 0
