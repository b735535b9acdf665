"""The subcommands of ``pressroom accounts``."""

from enum import StrEnum
from typing import Annotated

import typer

from cli.connection import open_command_resources
from cli.output import Email, Json, create_group, print_record, print_records, select_fields
from core.permissions import Role
from services.accounts import accounts, teams
from services.operators import user_accounts

AccountArgument = Annotated[
    str, typer.Argument(metavar="ACCOUNT", help="The account's id, or its owner's address.")
]

_TEAMMATE_FIELDS = "user_id email name role joined_at"


class GrantedRole(StrEnum):
    ADMIN = "admin"
    EDITOR = "editor"
    ANALYST = "analyst"


app = create_group("Manage accounts and the people who can act in them.")


@app.command("list")
def list_accounts(as_json: Json = False) -> None:
    """Show the 1,000 largest accounts with more than one person."""
    with open_command_resources() as resources, resources.unit_of_work() as uow:
        rows = [select_fields(team, "id owner people") for team in teams.list_teams(uow)]
    print_records(rows, as_json=as_json)


@app.command("show")
def show_team(account: AccountArgument, as_json: Json = False) -> None:
    """Show the people who can act in an account, the owner first."""
    with open_command_resources() as resources, resources.unit_of_work() as uow:
        team = teams.list_team(uow, user_accounts.find_user(uow, account).account_id)
    print_records([select_fields(each, _TEAMMATE_FIELDS) for each in team], as_json=as_json)


@app.command("add")
def add_teammate(
    account: AccountArgument,
    email: Email,
    *,
    role: Annotated[GrantedRole, typer.Option(help="What the person may do in the account.")],
    as_json: Json = False,
) -> None:
    """Let a person act in an account. The person must be able to log in."""
    with open_command_resources() as resources, resources.unit_of_work() as uow:
        account_id = user_accounts.find_user(uow, account).account_id
        teammate = teams.add_teammate(uow, account_id, email=email, role=Role(role))
    print_record(select_fields(teammate, _TEAMMATE_FIELDS), as_json=as_json)


@app.command("remove")
def remove_teammate(account: AccountArgument, email: Email, as_json: Json = False) -> None:
    """Remove a person from an account. The account keeps everything that they made."""
    with open_command_resources() as resources, resources.unit_of_work() as uow:
        account_id = user_accounts.find_user(uow, account).account_id
        person = accounts.get_user_by_email(uow, email)
        teams.remove_teammate(uow, account_id, person.id)
        record = select_fields(person, "id email")
    print_record(record, as_json=as_json)
