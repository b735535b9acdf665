"""Prints a reference of all ``pressroom`` commands as Markdown.

The command ``python -m cli.command_reference > docs/commands.md`` updates the committed reference.
"""

import re
import sys
from collections.abc import Iterator
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, get_args, get_origin

import typer

from cli.main import app, load_command

HEAD = """# Commands

Written by `python -m cli.command_reference`; don't edit. Each command takes `--help`. `--json`
prints one JSON document for scripts. A command ends with code 0, with 1 when it was refused or
found a fault, and with 2 when its words or the settings are wrong; where there are more codes, its
text says so. `pressroom --version` shows the version, and `pressroom --install-completion` has your
shell complete commands and options.

The commands from `pressroom users` on work on the services that the settings name, else on the
development stack of this folder: its home is `.pressroom`, or what `PRESSROOM_HOME` names.
"""
_PLACEHOLDERS = {int: "NUMBER", float: "NUMBER", Path: "FILE", datetime: "TIME"}
_MAX_CHOICES_SHOWN = 12
_COMMON_OPTIONS = {"--help", "--json", "--install-completion", "--show-completion", "--version"}


def build_page() -> str:
    root: Any = typer.main.get_command(app)
    table = _build_table(root, ["pressroom"])
    return "\n".join([HEAD, *table, *_build_groups(root, ["pressroom"])])


def _build_groups(group: Any, words: list[str]) -> Iterator[str]:
    for name, each in group.commands.items():
        command = load_command(each)
        path = [*words, name]
        if hasattr(command, "commands"):
            yield f"{'#' * len(path)} `{' '.join(path)}`\n\n{_sentence(command.help)}\n"
            yield from _build_table(command, path)
            yield from _build_groups(command, path)


def _build_table(group: Any, words: list[str]) -> Iterator[str]:
    commands = {name: load_command(each) for name, each in group.commands.items()}
    yield "| command | what it does, and its options with their defaults |\n|---|---|"
    for name, command in commands.items():
        if not hasattr(command, "commands"):
            yield _build_row(command, [*words, name])
    yield ""


def _build_row(command: Any, path: list[str]) -> str:
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [
        each
        for each in command.params
        if each not in arguments and not each.hidden and not _COMMON_OPTIONS & set(each.opts)
    ]
    usage = [*path, *map(_usage, arguments)]
    usage += [_option(each) for each in options if each.required]
    parts = [_sentence(command.help)]
    parts += [f"`{_usage(each)}`: {_sentence(each.help)}" for each in arguments if each.help]
    parts += [f"`{_option(each)}`{_default(each)}: {_sentence(each.help)}" for each in options]
    return f"| `{_cell(' '.join(usage))}` | {_cell('<br>'.join(parts))} |"


def _usage(argument: Any) -> str:
    name = str(argument.metavar or _choices(argument) or argument.name.upper())
    return name if argument.required else f"[{name}]"


def _option(option: Any) -> str:
    if option.is_flag:
        return str(option.opts[0])
    value = option.metavar or _choices(option) or _PLACEHOLDERS.get(_annotation(option), "TEXT")
    return f"{option.opts[0]} {value}"


def _choices(parameter: Any) -> str | None:
    """Return the allowed values of a parameter, or ``None`` if there are too many to list."""
    annotation = _annotation(parameter)
    is_choice = isinstance(annotation, type) and issubclass(annotation, StrEnum)
    return "|".join(annotation) if is_choice and len(annotation) <= _MAX_CHOICES_SHOWN else None


def _annotation(parameter: Any) -> Any:
    """Return the type of a parameter, or the type of its items if it is repeatable."""
    annotation = parameter.type_descriptor.annotation
    return get_args(annotation)[0] if get_origin(annotation) is list else annotation


def _default(option: Any) -> str:
    value = option.default
    if value is None or option.is_flag or callable(value):
        return ""
    return f" (`{getattr(value, 'value', value)}`)"


def _sentence(text: str | None) -> str:
    return re.sub(r"\s+", " ", text or "")


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


if __name__ == "__main__":
    sys.stdout.write(build_page())
