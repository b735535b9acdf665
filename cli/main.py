"""The ``pressroom`` command."""

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import typer
from typer.core import TyperGroup

from cli import processes, stack
from core.errors import DomainError, TransientError, own_words
from core.settings import SettingsError

REFUSED, MISCONFIGURED = 1, 2

# Imported when a command of theirs is run: it takes a second, and `pressroom up` or a worker does
# not need them.
_GROUPS = {
    "users": "cli.accounts:users",
    "keys": "cli.accounts:keys",
    "oauth-clients": "cli.oauth_clients:app",
    "lists": "cli.lists:app",
    "import": "cli.imports:app",
    "export": "cli.exports:app",
    "credits": "cli.credits:app",
    "jobs": "cli.jobs:app",
    "upkeep": "cli.upkeep:app",
    "trace": "cli.trace:app",
    "attachments": "cli.attachments:attachments",
    "encryption": "cli.attachments:encryption",
    "backup": "cli.backup:app",
    "listen": "cli.listen:app",
}


class LazyGroups(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        return [*super().list_commands(ctx), *_GROUPS]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in _GROUPS:
            return super().get_command(ctx, cmd_name)
        module, _, name = _GROUPS[cmd_name].partition(":")
        group = typer.main.get_command(getattr(import_module(module), name))
        group.name = cmd_name
        return group

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = own_words(error.message)
            raise


app = typer.Typer(
    cls=LazyGroups, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False
)
# The image of a deployment has no development stack.
if find_spec("devstack"):
    stack.register(app)
processes.register(app)


def main() -> None:
    try:
        app()
    except SettingsError as error:
        typer.echo(f"Settings are missing or wrong:\n{error}", err=True)
        sys.exit(MISCONFIGURED)
    except DomainError as error:
        typer.echo(f"{error.message} ({error.code})", err=True)
        sys.exit(REFUSED)
    except TransientError as error:
        typer.echo(f"A part of the service is not reachable: {error}", err=True)
        sys.exit(REFUSED)


if __name__ == "__main__":
    main()
