"""Passwords are typed, or come by stdin: others of the machine can read a command's words."""

import sys
from typing import Annotated

import typer

PasswordStdin = Annotated[
    bool,
    typer.Option("--password-stdin", help="Read the password from the first line of stdin."),
]
# In its place, for scripts that were written before.
PasswordOption = Annotated[str | None, typer.Option("--password", hidden=True)]


def read_password(*, from_stdin: bool, given: str | None = None) -> str:
    """The password that the caller gives; raises ``typer.BadParameter`` without any way to ask."""
    if given is not None:
        return given
    if from_stdin:
        return sys.stdin.readline().rstrip("\r\n")
    if not sys.stdin.isatty():
        raise typer.BadParameter("no terminal to ask at: give --password-stdin")
    return str(typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))
