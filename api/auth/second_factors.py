"""Reads the second factor of a login from a form: a code or a passkey's signature."""

from fastapi import Request

from api.cookies import FORM_COOKIE, KNOWN_BROWSER_COOKIE
from api.errors import STATUS_OF
from api.metrics import LOGINS
from api.state import State
from core.errors import DomainError, Kind
from core.errors.access import AUTH_SECOND_FACTOR, LOGIN_PAUSED
from core.errors.people import PASSKEY_INVALID, SECOND_FACTOR_WRONG
from services.accounts import logins
from services.accounts.factors.second_steps import SubmittedFactor
from services.accounts.logins import Attempt

_FACTOR_ERROR_CODES = frozenset(
    error.code for error in (AUTH_SECOND_FACTOR, SECOND_FACTOR_WRONG, PASSKEY_INVALID, LOGIN_PAUSED)
)


def read_factor(request: Request, state: State, form: dict[str, str]) -> SubmittedFactor:
    form_cookie = state.cookies.read(request, FORM_COOKIE) or ""
    return SubmittedFactor(form_cookie, form.get("code", ""), form.get("passkey", ""))


async def count_code(
    request: Request, state: State, email: str, factor: SubmittedFactor | None
) -> Attempt | None:
    """Attempts with a passkey aren't counted, because a passkey can't be guessed."""
    if factor is None or factor.passkey or not factor.code:
        return None
    browser_token = state.cookies.read(request, KNOWN_BROWSER_COOKIE)
    return await state.in_unit_of_work(
        logins.begin_code_attempt, email=email, browser_token=browser_token
    )


async def count_wrong_code(state: State, attempt: Attempt | None, error: DomainError) -> None:
    if attempt is not None and error.code == SECOND_FACTOR_WRONG.code:
        LOGINS.labels("failed").inc()
        await state.in_unit_of_work(logins.record_failure, attempt)


def is_factor_error(error: DomainError) -> bool:
    return error.code in _FACTOR_ERROR_CODES


def status_of_error(error: DomainError) -> int:
    """The status for a missing or wrong second factor is 403."""
    is_factor = is_factor_error(error) and error.kind is not Kind.RATE_LIMITED
    return STATUS_OF[AUTH_SECOND_FACTOR.kind if is_factor else error.kind]
