"""`pressroom up`, `down`, `status` and `reset`: the development stack from the command line."""

# Every `pressroom` command imports this module, so it imports the stack's code only when a command
# of the stack runs.

from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def register(app: typer.Typer) -> None:
    for command in (up, down, status, reset):
        app.command()(command)


def up(
    detach: Annotated[
        bool, typer.Option("--detach", help="Return once the stack is ready; it keeps running.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Start everything: services, API, workers, Flower and the sandbox."""
    from devstack.supervisor import commands

    raise typer.Exit(commands.up(detach=detach, as_json=as_json))


def down(as_json: Json = False) -> None:
    """Stop the stack and wait until every process has ended. Its data stays."""
    from devstack.supervisor import commands

    raise typer.Exit(commands.down(as_json=as_json))


def status(as_json: Json = False) -> None:
    """Show each process of the running stack. The exit code is 3 when no stack runs."""
    from devstack.supervisor import commands

    raise typer.Exit(commands.status(as_json=as_json))


def reset(
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Stop the stack and delete its data: database, queues, images, keys and logs."""
    from devstack.supervisor import commands
    from devstack.supervisor.home import home_folder

    place = home_folder.from_environment()
    if not yes:
        typer.confirm(f"Delete all data in {place.path}?", abort=True, err=True)
    raise typer.Exit(commands.reset(as_json=as_json))
