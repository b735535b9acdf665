"""The groups of commands, each imported when one of its commands runs.

An import of a group takes most of a second, and `pressroom --help`, `pressroom up` or a worker
needs none of them. So what help says of a group stands here too.
"""

from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from core.errors import own_words


class CommandGroup(NamedTuple):
    source: str
    """The module and the name in it."""
    sentence: str


GROUPS = {
    "env": CommandGroup(
        "cli.environment_file:app",
        "Write a file of all settings for docker-compose.yml, with passwords and keys drawn anew.",
    ),
    "doctor": CommandGroup(
        "cli.doctor.command:app",
        "Check everything that this deployment needs. With faults, the exit code is 1.",
    ),
    "users": CommandGroup("cli.accounts:app", "People who own or read lists."),
    "keys": CommandGroup("cli.api_keys:app", "API keys."),
    "oauth-clients": CommandGroup(
        "cli.oauth_clients:app", "Programs that people may give access to."
    ),
    "lists": CommandGroup("cli.lists:app", "Lists that people subscribe to."),
    "import": CommandGroup("cli.imports:app", "Import members from a file, as the list's owner."),
    "export": CommandGroup(
        "cli.exports:app", "Write a list to a CSV.gz file, as it is at one moment."
    ),
    "credits": CommandGroup("cli.credits:app", "Credits and their ledger."),
    "jobs": CommandGroup("cli.jobs:app", "Durable jobs, which the workers do."),
    "upkeep": CommandGroup(
        "cli.upkeep:app",
        "Show the periodic work of the deployment, or run one kind of it in this process.",
    ),
    "events": CommandGroup(
        "cli.events:app", "What happened to a user's account, and to what they own."
    ),
    "trace": CommandGroup(
        "cli.trace:app",
        "Make a trace id. It stands for the person on the list, so send it to that person alone.",
    ),
    "attachments": CommandGroup("cli.attachments:attachments", "Uploaded images."),
    "encryption": CommandGroup("cli.attachments:encryption", "Encryption keys."),
    "backup": CommandGroup("cli.backup:app", "Backups of the database and the bucket."),
    "listen": CommandGroup(
        "cli.listen:app",
        "Post the account's events to a URL as webhooks, signed, until Ctrl+C ends it.",
    ),
}


class UnloadedGroup(TyperCommand):
    """What stands for a group until it is needed: its name and its sentence."""

    def __init__(self, name: str, group: CommandGroup) -> None:
        super().__init__(name, help=group.sentence)
        self._source = group.source

    def load(self) -> Any:
        module, _, name = self._source.partition(":")
        loaded = typer.main.get_command(getattr(import_module(module), name))
        loaded.name = self.name
        return loaded


class LazyGroups(TyperGroup):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        for name, group in GROUPS.items():
            self.add_command(UnloadedGroup(name, group))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        return name, loaded(command), rest

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = own_words(error.message)
            raise


def loaded(command: Any) -> Any:
    """The command itself, imported if it was not yet."""
    return command.load() if isinstance(command, UnloadedGroup) else command
