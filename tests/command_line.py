"""Does the `pressroom` command take these words? Asked of the command itself; nothing is run."""

from collections.abc import Sequence
from typing import Any

import typer

from cli.main import app


def require_accepted(words: Sequence[str]) -> None:
    """Parse `pressroom …` as the command would; raises what it would complain of."""
    assert words[0] == "pressroom", words
    command: Any = typer.main.get_command(app)
    rest = list(words[1:])
    while hasattr(command, "get_command"):
        assert rest, f"{' '.join(words)} lacks a command"
        found = command.get_command(None, rest[0])
        assert found is not None, f"{' '.join(words)}: there is no {rest[0]}"
        command = found
        rest.pop(0)
    if "--help" not in rest:
        command.make_context(command.name, rest)


def option(words: Sequence[str], name: str) -> str:
    """The value that follows an option."""
    return words[list(words).index(name) + 1]
