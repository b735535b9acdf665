"""Forms in which a person shows their second factor, at a login and for a new password."""

from functools import partial

from fastapi import Request

from api.errors import STATUS_OF
from api.metrics.requests import LOGINS
from api.state import State
from core.errors import DomainError, Kind
from core.refusals.access import AUTH_SECOND_FACTOR, LOGIN_PAUSED
from core.refusals.people import PASSKEY_INVALID, SECOND_FACTOR_WRONG
from services.people import logins
from services.people.factors.second_steps import ShownFactor
from services.people.logins import Attempt

_PROBLEMS = frozenset(
    each.code for each in (AUTH_SECOND_FACTOR, SECOND_FACTOR_WRONG, PASSKEY_INVALID, LOGIN_PAUSED)
)


def shown_factor(request: Request, state: State, form: dict[str, str]) -> ShownFactor:
    form_cookie = request.cookies.get(state.cookies.form, "")
    return ShownFactor(form_cookie, form.get("code", ""), form.get("passkey", ""))


async def count_code(
    request: Request, state: State, email: str, shown: ShownFactor | None
) -> Attempt | None:
    """Count the attempt to show a code, before the code is looked at; raises ``login.paused``.

    A passkey can't be guessed, so showing one is not counted.
    """
    if shown is None or shown.passkey or not shown.code:
        return None
    known = request.cookies.get(state.cookies.known)
    keyring = state.resources.keyring
    count = partial(logins.begin_code, keyring=keyring, email=email, known=known)
    return await state.in_unit_of_work(count)


async def note_wrong_code(state: State, attempt: Attempt | None, error: DomainError) -> None:
    """Tell the account's owner of a code that was wrong."""
    if attempt is not None and error.code == SECOND_FACTOR_WRONG.code:
        LOGINS.labels("failed").inc()
        await state.in_unit_of_work(partial(logins.fail, attempt=attempt))


def is_problem(error: DomainError) -> bool:
    """Whether the form can be shown once more with what was wrong."""
    return error.code in _PROBLEMS


def problem_status(error: DomainError) -> int:
    """The status of that form: 403 where the factor is missing or wrong."""
    is_factor = is_problem(error) and error.kind is not Kind.RATE_LIMITED
    return STATUS_OF[AUTH_SECOND_FACTOR.kind if is_factor else error.kind]
