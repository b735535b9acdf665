"""Checks JSON and YAML files against a schema."""

import subprocess
import sys
from pathlib import Path

from tests.support.repository.tracked_files import ROOT


def require_valid(schema: str | Path, *files: str) -> None:
    """Fail unless all files follow the schema."""
    option = "--schemafile" if isinstance(schema, Path) else "--builtin-schema"
    completed = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", option, str(schema), *files],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr
