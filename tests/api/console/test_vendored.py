"""The scripts of others are what their packages have, byte for byte."""

import hashlib
import re
from importlib.resources import files

VENDORED = files("api.console").joinpath("vendored")
ROW = re.compile(
    r"^\| `([\w.-]+)` \|.*\| \[0BSD\]\(([\w.-]+)\) \| `([0-9a-f]{64})` \|$", re.MULTILINE
)


def test_each_file_has_the_hash_and_the_licence_that_are_written_down() -> None:
    rows = ROW.findall(VENDORED.joinpath("README.md").read_text())
    scripts = {each.name for each in VENDORED.iterdir() if each.name.endswith(".js")}
    assert scripts == {name for name, _, _ in rows}
    for name, licence, digest in rows:
        assert hashlib.sha256(VENDORED.joinpath(name).read_bytes()).hexdigest() == digest
        terms = " ".join(VENDORED.joinpath(licence).read_text().split())
        assert "for any purpose with or without fee is hereby granted" in terms
