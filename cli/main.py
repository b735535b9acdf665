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
    """A group of commands. ``source`` is the module and the name of the Typer app in the module."""

    source: str
    sentence: str


# Optimization: command groups imported at first use (decision 17).
# The module of a command group is imported only when one of its commands runs.
GROUPS = {
    "env": CommandGroup(
        "cli.environment_file:app",
        "Create a settings file for docker-compose.yml. All passwords and keys are generated.",
    ),
    "doctor": CommandGroup(
        "cli.doctor:app",
        "Check all servers and settings of this deployment. The exit code is 1 if a check fails.",
    ),
    "users": CommandGroup("cli.accounts:app", "Manage users."),
    "accounts": CommandGroup(
        "cli.teams:app", "Manage accounts and the people who can act in them."
    ),
    "keys": CommandGroup("cli.credentials:keys", "Manage API keys."),
    "senders": CommandGroup(
        "cli.senders:app", "Manage senders, which report bounces and complaints."
    ),
    "oauth-clients": CommandGroup(
        "cli.credentials:oauth_clients",
        "Manage OAuth clients, which users can authorize.",
    ),
    "lists": CommandGroup("cli.lists:app", "Manage lists."),
    "import": CommandGroup("cli.transfers:import_app", "Import members from a file."),
    "export": CommandGroup(
        "cli.transfers:export_app", "Export the members of a list to a CSV.gz file."
    ),
    "credits": CommandGroup("cli.credits:app", "Manage credits and the credit ledger."),
    "jobs": CommandGroup("cli.jobs:app", "Manage background jobs."),
    "maintenance": CommandGroup(
        "cli.maintenance:app",
        "Show all maintenance tasks, or run one task now.",
    ),
    "events": CommandGroup("cli.events:app", "Show events of users' accounts and lists."),
    "trace": CommandGroup(
        "cli.lists:trace_app",
        "Create a trace id of a person on a list. Send the trace id only to this person.",
    ),
    "attachments": CommandGroup("cli.attachments:app", "Manage uploaded images."),
    "encryption": CommandGroup("cli.encryption:app", "Manage encryption keys."),
    "backup": CommandGroup("cli.backup:app", "Manage backups of the database and the bucket."),
    "listen": CommandGroup(
        "cli.listen:app",
        "Forward an account's events to a URL as signed webhooks. Stop with Ctrl+C.",
    ),
}


class UnloadedGroup(TyperCommand):
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
    """Run and manage Pressroom."""


def main() -> None:
    try:
        app()
    except SettingsError as error:
        typer.echo(f"Settings are missing or invalid:\n{error}", err=True)
        sys.exit(MISCONFIGURED)
    except DomainError as error:
        typer.echo(f"{error.message} ({error.code})", err=True)
        sys.exit(REFUSED)
    except TransientError as error:
        typer.echo(f"A server is not reachable: {error}", err=True)
        sys.exit(REFUSED)


if __name__ == "__main__":
    main()
