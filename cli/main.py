"""The ``pressroom`` command."""

import sys
from importlib.util import find_spec
from typing import Annotated

import typer

from cli import processes, stack
from cli.command_groups import LazyGroups
from core.errors import DomainError, SettingsError, TransientError
from core.process.garbage_collection import begin_start

REFUSED, MISCONFIGURED = 1, 2

begin_start()

app = typer.Typer(cls=LazyGroups, no_args_is_help=True, pretty_exceptions_enable=False)
# The image of a deployment has no development stack.
if find_spec("devstack"):
    stack.register(app)
processes.register(app)


def _show_version(is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version

        typer.echo(f"pressroom {version('pressroom')}")
        raise typer.Exit


@app.callback()
def pressroom(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    """Run Pressroom, and look after it."""


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
