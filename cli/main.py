"""The command ``pressroom``, which contains all other commands."""

import sys
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from cli import processes
from core.errors import DomainError, SettingsError, TransientError, strip_pydantic_prefix
from core.process.garbage_collection import begin_start

REFUSED = 1
MISCONFIGURED = 2


class CommandGroup(NamedTuple):
    """A group of commands, such as ``pressroom users``.

    Attributes:
        source: the module of the command group, and the name of the Typer app in the module.
        sentence: the description of the group in ``pressroom --help``.
    """

    source: str
    sentence: str


# Optimization: command groups imported at first use (decision 17).
# The module of a command group is imported only when one of its commands runs.
GROUPS = {
    "env": CommandGroup(
        "cli.environment_file:app",
        "Write a file of all settings for docker-compose.yml. Passwords and keys are drawn anew.",
    ),
    "doctor": CommandGroup(
        "cli.doctor.command:app",
        "Check everything that this deployment needs. With faults, the exit code is 1.",
    ),
    "users": CommandGroup("cli.accounts:app", "People who own or read lists."),
    "keys": CommandGroup("cli.credentials:keys", "API keys."),
    "oauth-clients": CommandGroup(
        "cli.credentials:oauth_clients", "Programs that people may give access to."
    ),
    "lists": CommandGroup("cli.lists:app", "Lists that people subscribe to."),
    "import": CommandGroup(
        "cli.transfers:import_app", "Import members from a file, as the list's owner."
    ),
    "export": CommandGroup(
        "cli.transfers:export_app", "Write a list to a CSV.gz file, as it is at one moment."
    ),
    "credits": CommandGroup("cli.credits:app", "Credits and their ledger."),
    "jobs": CommandGroup("cli.jobs:app", "Durable jobs, which the workers do."),
    "maintenance": CommandGroup(
        "cli.maintenance:app",
        "Show the deployment's periodic work, or run one kind of it.",
    ),
    "events": CommandGroup(
        "cli.events:app", "What happened to a user's account, and to what they own."
    ),
    "trace": CommandGroup(
        "cli.lists:trace_app",
        "Make a trace id. It stands for the person on the list, so send it to that person alone.",
    ),
    "attachments": CommandGroup("cli.attachments:app", "Uploaded images."),
    "encryption": CommandGroup("cli.encryption:app", "Encryption keys."),
    "backup": CommandGroup("cli.backup:app", "Backups of the database and the bucket."),
    "listen": CommandGroup(
        "cli.listen:app",
        "Post the account's events to a URL as signed webhooks. Ctrl+C ends it.",
    ),
}


class UnloadedGroup(TyperCommand):
    """A command group whose module is not yet imported."""

    def __init__(self, name: str, group: CommandGroup) -> None:
        super().__init__(name, help=group.sentence)
        self._source = group.source

    def load(self) -> Any:
        module, _, name = self._source.partition(":")
        group = typer.main.get_command(getattr(import_module(module), name))
        group.name = self.name
        return group


class LazyGroups(TyperGroup):
    """The top level of ``pressroom``, which imports a command group at its first use."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        for name, group in GROUPS.items():
            self.add_command(UnloadedGroup(name, group))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        return name, load_command(command), rest

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = strip_pydantic_prefix(error.message)
            raise


def load_command(command: Any) -> Any:
    """Import a command's module if necessary, and return the command."""
    return command.load() if isinstance(command, UnloadedGroup) else command


begin_start()

# Disable Rich markup, because importing Rich would double the time of ``--help``.
app = typer.Typer(
    cls=LazyGroups,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"max_content_width": 100},
)
processes.register_commands(app)


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
