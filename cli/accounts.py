"""The commands of users.

Each imports what it needs of the services itself: `users list` does without the classes of tables,
and starts sooner.
"""

import sys
from enum import StrEnum
from typing import Annotated

import typer

from cli.connection import connected
from cli.output import Email, Json, Yes, confirm, fields, group, show, show_all
from core.plans import Plan

PasswordStdin = Annotated[
    bool, typer.Option("--password-stdin", help="Read the password from the first line of stdin.")
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


app = group("People who own or read lists.")

_USER = "id email name plan is_operator created_at"


@app.command("create")
def create_user(
    email: Email,
    *,
    name: Annotated[str, typer.Option(help="The person's name.")],
    plan: Annotated[Plan, typer.Option(help="The plan that the user is on.")] = Plan.FREE,
    password_stdin: PasswordStdin = False,
    password: PasswordOption = None,
    as_json: Json = False,
) -> None:
    """Create a user who can log in. The command asks for the password: 8 characters or more."""
    from services.accounts import accounts

    chosen = read_password(from_stdin=password_stdin, given=password)
    with connected() as resources, resources.unit_of_work() as uow:
        user = accounts.create_user(uow, email=email, name=name, password=chosen)
        user.plan = plan
        show(fields(user, _USER), as_json=as_json)


@app.command("show")
def show_user(
    named: Annotated[str, typer.Argument(metavar="USER", help="Their address or id.")],
    as_json: Json = False,
) -> None:
    """Show one user, with what they have."""
    from services.operators import user_accounts

    with connected() as resources, resources.unit_of_work() as uow:
        account = user_accounts.read_account(uow, user_accounts.find_user(uow, named))
        had = fields(account, "has_password has_second_factor lists live_keys")
        user = account.user
        show({**fields(user, _USER), **had, "erased_at": user.erased_at}, as_json=as_json)


@app.command("password")
def set_password(
    email: Email, password_stdin: PasswordStdin = False, as_json: Json = False
) -> None:
    """Set a user's password, which the command asks for. Their sessions end, and a mail says so."""
    from services.accounts import registration

    chosen = read_password(from_stdin=password_stdin)
    with connected() as resources, resources.unit_of_work() as uow:
        user = registration.set_password(uow, email=email, password=chosen)
        show(fields(user, _USER), as_json=as_json)


@app.command("plan")
def set_plan(email: Email, plan: Plan, as_json: Json = False) -> None:
    """Put a user on the free or the paid plan."""
    from services.accounts import accounts

    with connected() as resources, resources.unit_of_work() as uow:
        user = accounts.set_plan(uow, email=email, plan=plan)
        show(fields(user, _USER), as_json=as_json)


class Switch(StrEnum):
    ON = "on"
    OFF = "off"


@app.command("operator")
def set_operator(email: Email, switch: Switch, as_json: Json = False) -> None:
    """Make a user an operator, or end that. An operator needs a second factor at each login."""
    from services.accounts import accounts

    with connected() as resources, resources.unit_of_work() as uow:
        user = accounts.set_operator(uow, email=email, is_operator=switch is Switch.ON)
        show(fields(user, _USER), as_json=as_json)


@app.command("reset-factors")
def reset_factors(email: Email, as_json: Json = False) -> None:
    """Remove the second factors of a user who lost them. A mail tells the user."""
    from services.accounts.factors import own_factors

    with connected() as resources, resources.unit_of_work() as uow:
        user = own_factors.remove_all_factors(uow, email=email)
        show(fields(user, _USER), as_json=as_json)


@app.command("erase")
def erase_user(email: Email, yes: Yes = False, as_json: Json = False) -> None:
    """Erase a person's data everywhere, for good. Their opt-outs stay in force.

    The person is gone at once, and a worker erases what they leave behind. It goes on if you stop
    this command; run it again to wait for it.
    """
    from cli.progress import result_of, wait_for
    from services.privacy import erasure

    confirm(f"Erase {email} for good?", yes=yes, as_json=as_json)
    with connected() as resources:
        job_id = erasure.begin_erasure(resources, email)
        job = wait_for(resources, job_id, what=f"erase {email}", quiet=as_json)
    show(result_of(job), as_json=as_json)


@app.command("list")
def list_users(
    owners: Annotated[bool, typer.Option("--owners", help="Only those who have a list.")] = False,
    email: Annotated[str, typer.Option(help="Only those whose address has this part.")] = "",
    as_json: Json = False,
) -> None:
    """Show the 1,000 newest users, newest first."""
    from services.operators import listed_users

    with connected() as resources:
        users = listed_users.list_newest_users(resources.database, owners=owners, email=email)
        show_all([fields(user, _USER) for user in users], as_json=as_json)
