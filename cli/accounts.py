import sys
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any

import typer

from cli.connection import connected
from cli.output import Json, fields, group, show, show_all
from cli.typed_passwords import PasswordOption, PasswordStdin, read_password
from core.scopes import Scope
from models import Plan, User
from services.access import api_keys, required_factors
from services.paging import WHOLE
from services.people import accounts
from storage.unit_of_work import UnitOfWork

users = group("People who own or read lists.")
keys = group("API keys.")

_USER = "id email name plan is_operator created_at"
_KEY = "id name last_four scopes created_at expires_at last_used_at revoked_at"
# What has room in a narrow terminal.
_KEY_ROW = "id name last_four expires_at revoked_at"

Email = Annotated[str, typer.Argument(metavar="EMAIL")]


@users.command("create")
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
    chosen = read_password(from_stdin=password_stdin, given=password)
    with connected() as resources, resources.unit_of_work() as uow:
        user = accounts.create_user(uow, email=email, name=name, password=chosen)
        user.plan = plan
        show(fields(user, _USER), as_json=as_json)


@users.command("show")
def show_user(
    named: Annotated[str, typer.Argument(metavar="USER", help="Their address or id.")],
    as_json: Json = False,
) -> None:
    """Show one user, with what they have."""
    with connected() as resources, resources.unit_of_work() as uow:
        user = accounts.get(uow, int(named)) if named.isdigit() else None
        show(_whole(uow, user or accounts.get_by_email(uow, named)), as_json=as_json)


def _whole(uow: UnitOfWork, user: User) -> dict[str, Any]:
    from services.mailing import lists

    return {
        **fields(user, _USER),
        "has_password": user.password_hash is not None,
        "has_second_factor": required_factors.is_asked(uow, user.id),
        "lists": [each.slug for each in lists.list_of(uow, user.id, WHOLE).rows],
        "live_keys": len(api_keys.live_of(uow, user.id)),
        "erased_at": user.erased_at,
    }


@users.command("password")
def set_password(
    email: Email,
    password_stdin: PasswordStdin = False,
    as_json: Json = False,
) -> None:
    """Set a user's password, which the command asks for. Their sessions end, and a mail says so."""
    # Imported here: it is not needed by the other commands, and takes a while.
    from services.people import registration

    chosen = read_password(from_stdin=password_stdin)
    with connected() as resources, resources.unit_of_work() as uow:
        user = registration.set_password(uow, email=email, password=chosen)
        show(fields(user, _USER), as_json=as_json)


@users.command("plan")
def set_plan(email: Email, plan: Plan, as_json: Json = False) -> None:
    """Put a user on the free or the paid plan."""
    with connected() as resources, resources.unit_of_work() as uow:
        user = accounts.set_plan(uow, email=email, plan=plan)
        show(fields(user, _USER), as_json=as_json)


class Switch(StrEnum):
    ON = "on"
    OFF = "off"


@users.command("operator")
def set_operator(email: Email, switch: Switch, as_json: Json = False) -> None:
    """Make a user an operator, who needs a second factor at each login, or end that."""
    with connected() as resources, resources.unit_of_work() as uow:
        user = accounts.set_operator(uow, email=email, is_operator=switch is Switch.ON)
        show(fields(user, _USER), as_json=as_json)


@users.command("reset-factors")
def reset_factors(email: Email, as_json: Json = False) -> None:
    """Remove the second factors of a user who lost them. A mail tells the user."""
    from services.people.factors import own_factors

    with connected() as resources, resources.unit_of_work() as uow:
        user = own_factors.reset(uow, email=email)
        show(fields(user, _USER), as_json=as_json)


@users.command("erase")
def erase_user(
    email: Email,
    yes: Annotated[bool, typer.Option("--yes", help="Don't ask.")] = False,
    as_json: Json = False,
) -> None:
    """Erase a person's data everywhere, for good. Their opt-outs stay in force.

    The person is gone at once, and a worker erases what they leave behind. It goes on if you stop
    this command; run it again to wait for it.
    """
    from cli.progress import result_of, wait_for
    from services.erasure import marking

    # Only a person at a terminal can answer, so scripts are not asked.
    if not (yes or as_json) and sys.stdin.isatty():
        typer.confirm(f"Erase {email} for good?", abort=True)
    with connected() as resources:
        job_id = marking.begin(resources, email)
        job = wait_for(resources, job_id, what=f"erase {email}", quiet=as_json)
    show(result_of(job), as_json=as_json)


@users.command("list")
def list_users(as_json: Json = False) -> None:
    """Show the 1,000 newest users, newest first."""
    with connected() as resources, resources.unit_of_work() as uow:
        show_all([fields(user, _USER) for user in accounts.list_users(uow)], as_json=as_json)


@keys.command("create")
def create_key(
    email: Email,
    name: Annotated[str, typer.Option(help="What the key is for.")],
    scope: Annotated[
        list[Scope] | None,
        typer.Option(help="Repeat for several. Without one, the key may do all that its user may."),
    ] = None,
    expires_at: Annotated[
        datetime | None,
        typer.Option(
            formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"],
            help="When the key ends, in UTC. Without it, the key stays until it is revoked.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Create an API key. It is shown only now."""
    with connected() as resources, resources.unit_of_work() as uow:
        user = accounts.get_by_email(uow, email)
        key, secret = api_keys.create(
            uow,
            resources.keyring,
            user_id=user.id,
            name=name,
            scopes=scope or None,
            expires_at=expires_at and expires_at.replace(tzinfo=UTC),
        )
        record = fields(key, _KEY) | {"key": secret}
    show(record, as_json=as_json)


@keys.command("list")
def list_keys(email: Email, as_json: Json = False) -> None:
    """Show a user's keys, newest first."""
    with connected() as resources, resources.unit_of_work() as uow:
        user = accounts.get_by_email(uow, email)
        found = api_keys.list_of(uow, user.id).rows
        shown = _KEY if as_json else _KEY_ROW
        show_all([fields(key, shown) for key in found], as_json=as_json)


@keys.command("revoke")
def revoke_key(key_id: Annotated[int, typer.Argument(metavar="ID")], as_json: Json = False) -> None:
    """Revoke a key: its next request is refused."""
    with connected() as resources, resources.unit_of_work() as uow:
        revoked = api_keys.revoke(uow, key_id=key_id)
    show({"id": key_id, "revoked": revoked}, as_json=as_json)
