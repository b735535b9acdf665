"""Small private files that are either whole or not there."""

import json
import os
import tempfile
from pathlib import Path

# How a file's name begins until the file is whole.
UNFINISHED = ".unfinished-"


def write_private(path: Path, text: str) -> None:
    """Replace the file in one step, readable by its owner only, and on the disk when this ends."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=UNFINISHED)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write_private_json(path: Path, value: object) -> None:
    write_private(path, json.dumps(value, indent=2) + "\n")


def read_json_object(path: Path) -> dict[str, object] | None:
    """The object the file holds; None when the file is missing or holds something else."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return value if isinstance(value, dict) else None
