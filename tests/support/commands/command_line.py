"""Checks whether the `pressroom` command accepts a command line, without running it."""

from collections.abc import Sequence
from contextlib import ExitStack
from itertools import pairwise
from typing import Any
from unittest import mock

import typer

from cli.main import app, load_command


def require_accepted(words: Sequence[str]) -> None:
    """Parse a command line as `pressroom` does. Raise an error for an invalid command line."""
    if list(words) == ["pressroom", "--version"]:
        return
    command, rest = _find_command(words)
    assert not _is_group(command), f"{' '.join(words)} lacks a command"
    if "--help" not in rest:
        with ExitStack() as patches:
            for parameter in (each for each in command.params if getattr(each, "prompt", None)):
                # Supply the answer that a person would type at the prompt.
                answer = mock.patch.object(parameter, "prompt_for_value", return_value="typed")
                patches.enter_context(answer)
            command.make_context(command.name, rest)


def require_known(words: Sequence[str]) -> None:
    """Require that the command and its options exist. Don't check the values of the options.

    Use this function for incomplete commands in documents, such as `pressroom lists create …`.
    """
    command, rest = _find_command(words)
    known_options = {name for parameter in command.params for name in parameter.opts}
    unknown = {word for word in rest if word.startswith("--")} - known_options
    assert not unknown, f"{' '.join(words)}: there is no {unknown}"


def option(words: Sequence[str], name: str) -> str:
    return words[list(words).index(name) + 1]


def options(words: Sequence[str], name: str) -> list[str]:
    """Return all values of an option that can be repeated."""
    return [value for word, value in pairwise(words) if word == name]


def _find_command(words: Sequence[str]) -> tuple[Any, list[str]]:
    assert words[0] == "pressroom", words
    command: Any = typer.main.get_command(app)
    rest = list(words[1:])
    while rest and _is_group(command) and not rest[0].startswith("-"):
        subcommand = command.get_command(None, rest[0])
        assert subcommand is not None, f"{' '.join(words)}: there is no {rest[0]}"
        command = load_command(subcommand)
        rest.pop(0)
    return command, rest


def _is_group(command: Any) -> bool:
    return hasattr(command, "commands")
