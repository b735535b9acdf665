"""The list of all that the product is made of."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from tests.deployment import files

# What it shows changes with the pins alone.
pytestmark = [pytest.mark.full("processes"), pytest.mark.slow]


def made(place: Path) -> bytes:
    """The file, as `make sbom` makes it."""
    recipe = re.search(
        r"^\t\$\(BIN\)/(cyclonedx-py (?:.*\\\n)*.*)",
        (files.ROOT / "Makefile").read_text(),
        re.MULTILINE,
    )
    assert recipe
    words = shlex.split(recipe[1].replace("\\\n", " ").replace("build/sbom.cdx.json", str(place)))
    program = Path(sys.executable).parent / words[0]
    subprocess.run([program, *words[1:]], check=True, cwd=files.ROOT, capture_output=True)
    return place.read_bytes()


def test_it_names_each_pinned_dependency_by_the_format_and_is_the_same_each_time(
    tmp_path: Path,
) -> None:
    content = made(tmp_path / "first.json")
    assert content == made(tmp_path / "second.json")
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(content.decode()) is None
    bom: dict[str, Any] = json.loads(content)
    assert bom["metadata"]["component"]["name"] == "pressroom"
    pinned = re.findall(
        r"^([A-Za-z0-9._-]+)(?:\[.*\])?==([^ ]+)",
        (files.ROOT / "requirements.txt").read_text(),
        re.MULTILINE,
    )
    assert {(each["name"], each["version"]) for each in bom["components"]} == set(pinned)
    for each in bom["components"]:
        [reference] = each["externalReferences"]
        assert reference["hashes"], each["name"]
