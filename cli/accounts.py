"""The subcommands of ``pressroom users``.

Each command imports the services that it needs, so that `users list` starts without the slow import
of table classes.
"""

import sys
from enum import StrEnum
from typing import Annotated

import typer

from cli.connection import open_command_resources
from cli.output import (
    Email,
    Json,
    Yes,
    confirm,
    create_group,
    print_record,
    print_records,
    select_fields,
)
from core.plans import Plan

PasswordStdin = Annotated[
    bool, typer.Option("--password-stdin", help="Read the password from the first line of stdin.")
]
# A deprecated option for older scripts, replaced by --password-stdin.
PasswordOption = Annotated[str | None, typer.Option("--password", hidden=True)]

_USER_FIELDS = "id email name plan is_operator created_at"
MAX_ERASURE_WAIT_SECONDS = 30.0
_ERASURE_WAITS = (
    "The person's memberships and mail have ended. A worker erases the remaining data. If none is "
    "running, start one with --queue maintenance."
)


def read_password(*, from_stdin: bool, option: str | None = None) -> str:
    if option is not None:
        return option
    if from_stdin:
        return sys.stdin.readline().rstrip("\r\n")
    if not sys.stdin.isatty():
        raise typer.BadParameter("needs a terminal to ask for the password; use --password-stdin")
    return str(typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))


app = create_group("Manage users.")


@app.command("create")
def create_user(
    email: Email,
    *,
    name: Annotated[str, typer.Option(help="The person's name.")],
    plan: Annotated[Plan, typer.Option(help="The user's plan.")] = Plan.FREE,
    password_stdin: PasswordStdin = False,
    password: PasswordOption = None,
    as_json: Json = False,
) -> None:
    """Create a user who can log in. The command asks for a password of at least 8 characters."""
    from services.accounts import accounts

    new_password = read_password(from_stdin=password_stdin, option=password)
    with open_command_resources() as resources, resources.unit_of_work() as uow:
        user = accounts.create_user(uow, email=email, name=name, password=new_password)
        user.plan = plan
        print_record(select_fields(user, _USER_FIELDS), as_json=as_json)


@app.command("show")
def show_user(
    named: Annotated[str, typer.Argument(metavar="USER", help="The user's e-mail address or id.")],
    as_json: Json = False,
) -> None:
    """Show a user, their lists and their number of API keys."""
    from services.operators import user_accounts

    with open_command_resources() as resources, resources.unit_of_work() as uow:
        account = user_accounts.read_account(uow, user_accounts.find_user(uow, named))
        details = select_fields(account, "has_password has_second_factor lists live_keys")
        user = account.user
        print_record(
            {**select_fields(user, _USER_FIELDS), **details, "erased_at": user.erased_at},
            as_json=as_json,
        )


@app.command("password")
def set_password(
    email: Email, password_stdin: PasswordStdin = False, as_json: Json = False
) -> None:
    """Set a user's password. The user is logged out everywhere and notified by mail."""
    from services.accounts import registration

    new_password = read_password(from_stdin=password_stdin)
    with open_command_resources() as resources, resources.unit_of_work() as uow:
        user = registration.set_password(uow, email=email, password=new_password)
        print_record(select_fields(user, _USER_FIELDS), as_json=as_json)


@app.command("plan")
def set_plan(
    email: Email, plan: Annotated[Plan, typer.Argument(metavar="free|paid")], as_json: Json = False
) -> None:
    """Set a user's plan to free or paid."""
    from services.accounts import accounts

    with open_command_resources() as resources, resources.unit_of_work() as uow:
        user = accounts.set_plan(uow, email=email, plan=plan)
        print_record(select_fields(user, _USER_FIELDS), as_json=as_json)


class Switch(StrEnum):
    ON = "on"
    OFF = "off"


@app.command("operator")
def set_operator(
    email: Email, switch: Annotated[Switch, typer.Argument(metavar="on|off")], as_json: Json = False
) -> None:
    """Make a user an operator, or revoke this role. Operators need a second factor to log in."""
    from services.accounts import accounts

    with open_command_resources() as resources, resources.unit_of_work() as uow:
        user = accounts.set_operator(uow, email=email, is_operator=switch is Switch.ON)
        print_record(select_fields(user, _USER_FIELDS), as_json=as_json)


@app.command("reset-factors")
def reset_factors(email: Email, as_json: Json = False) -> None:
    """Remove all second factors of a user. The user is notified by mail."""
    from services.accounts.factors import own_factors

    with open_command_resources() as resources, resources.unit_of_work() as uow:
        user = own_factors.remove_all_factors(uow, email=email)
        print_record(select_fields(user, _USER_FIELDS), as_json=as_json)


@app.command("erase")
def erase_user(email: Email, yes: Yes = False, as_json: Json = False) -> None:
    """Permanently erase all data of a person. Opt-outs stay in force.

    The person's memberships and mail end before the command returns. A worker erases the remaining
    data. If the worker makes no progress for half a minute, the command returns without waiting
    longer. If you stop this command, a worker completes the erasure. To wait for the erasure again,
    run the command again.
    """
    from cli.progress import get_result, wait_for_job
    from models import FINISHED
    from services.privacy import erasure

    confirm(f"Permanently erase all data of {email}?", yes=yes, as_json=as_json)
    with open_command_resources() as resources:
        job_id = erasure.begin_erasure(resources, email)
        erasure.end_memberships(resources, job_id)
        job = wait_for_job(
            resources,
            job_id,
            what=f"erase {email}",
            quiet=as_json,
            max_idle_seconds=MAX_ERASURE_WAIT_SECONDS,
        )
        if job.status not in FINISHED:
            with resources.unit_of_work() as uow:
                result = erasure.read_unfinished_result(uow, job)
            typer.echo(_ERASURE_WAITS, err=True)
        else:
            result = get_result(job)
    print_record(result, as_json=as_json)


@app.command("list")
def list_users(
    owners: Annotated[
        bool, typer.Option("--owners", help="Show only users who own a list.")
    ] = False,
    email: Annotated[
        str, typer.Option(help="Show only users whose address contains this text.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Show the 1,000 newest users, newest first."""
    from services.operators import listed_users

    with open_command_resources() as resources:
        users = listed_users.list_newest_users(resources.database, owners=owners, email=email)
        print_records([select_fields(user, _USER_FIELDS) for user in users], as_json=as_json)
