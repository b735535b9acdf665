"""The database's functions, each in a file of its own with the triggers that call it.

A file is always the current text. Migrations make the tables around them.
"""

from pathlib import Path

_FOLDER = Path(__file__).parent


def functions() -> dict[str, str]:
    """The statements that create each function and its triggers, by the function's name."""
    return {path.stem: path.read_text() for path in sorted(_FOLDER.glob("*.sql"))}
