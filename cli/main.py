"""The ``pressroom`` command."""

import sys

import typer
from sqlalchemy.exc import OperationalError

from cli import processes
from core.errors import DomainError
from core.settings import SettingsError

REFUSED, MISCONFIGURED = 1, 2


def build() -> typer.Typer:
    from cli import accounts, devstack, jobs, lists

    app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
    devstack.register(app)
    processes.register(app)
    app.add_typer(accounts.users, name="users")
    app.add_typer(accounts.keys, name="keys")
    app.add_typer(lists.app, name="lists")
    app.add_typer(jobs.app, name="jobs")
    return app


def main() -> None:
    try:
        build()()
    except SettingsError as error:
        typer.echo(f"Settings are missing or wrong:\n{error}", err=True)
        sys.exit(MISCONFIGURED)
    except DomainError as error:
        typer.echo(f"{error.message} ({error.code})", err=True)
        sys.exit(REFUSED)
    except OperationalError as error:
        typer.echo(f"The database is not usable: {error.orig}".rstrip(), err=True)
        sys.exit(REFUSED)


if __name__ == "__main__":
    main()
