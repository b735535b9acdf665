"""Does the `pressroom` command take these words? Asked of the command itself; nothing is run."""

from collections.abc import Sequence
from contextlib import ExitStack
from itertools import pairwise
from typing import Any
from unittest import mock

import typer

from cli.main import app, load_command


def require_accepted(words: Sequence[str]) -> None:
    """Parse `pressroom …` as the command would; raises what it would complain of."""
    command, rest = _resolved(words)
    assert not _is_group(command), f"{' '.join(words)} lacks a command"
    if "--help" not in rest:
        with ExitStack() as answered:
            for asking in (each for each in command.params if getattr(each, "prompt", None)):
                # A person types what the command asks for.
                answer = mock.patch.object(asking, "prompt_for_value", return_value="typed")
                answered.enter_context(answer)
            command.make_context(command.name, rest)


def require_known(words: Sequence[str]) -> None:
    """As `require_accepted`, for a sentence's `pressroom lists create …`: names, not values."""
    command, rest = _resolved(words)
    known = {name for parameter in command.params for name in parameter.opts}
    unknown = {word for word in rest if word.startswith("--")} - known
    assert not unknown, f"{' '.join(words)}: there is no {unknown}"


def option(words: Sequence[str], name: str) -> str:
    """The value that follows an option."""
    return words[list(words).index(name) + 1]


def options(words: Sequence[str], name: str) -> list[str]:
    """The values of an option that may be given several times."""
    return [value for word, value in pairwise(words) if word == name]


def _resolved(words: Sequence[str]) -> tuple[Any, list[str]]:
    """The command that the words name, or the group where they end, and the words behind it."""
    assert words[0] == "pressroom", words
    command: Any = typer.main.get_command(app)
    rest = list(words[1:])
    while rest and _is_group(command) and not rest[0].startswith("-"):
        found = command.get_command(None, rest[0])
        assert found is not None, f"{' '.join(words)}: there is no {rest[0]}"
        command = load_command(found)
        rest.pop(0)
    return command, rest


def _is_group(command: Any) -> bool:
    return hasattr(command, "commands")
