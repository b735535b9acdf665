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
    while hasattr(command, "commands"):
        assert rest, f"{' '.join(words)} lacks a command"
        assert rest[0] in command.commands, f"{' '.join(words)}: there is no {rest[0]}"
        command = command.commands[rest.pop(0)]
    if "--help" not in rest:
        command.make_context(command.name, rest)


def option(words: Sequence[str], name: str) -> str:
    """The value that follows an option."""
    return words[list(words).index(name) + 1]
