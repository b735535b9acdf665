"""Pages on which people see, make and end their API keys."""

from datetime import timedelta
from functools import partial
from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response

from api.access.page_sessions import (
    FormFields,
    FormMember,
    FormOf,
    Member,
    PageSession,
    RecentFormMember,
    RecentMember,
    redirect_to_path,
    session_page,
)
from api.access.requirements import PUBLIC
from api.limits.bulkheads import RECORDS
from api.parameters import StateOf
from api.request_ids import current_request_id
from api.state import State
from core import clock, ids
from core.errors import DomainError, Kind
from core.refusals.access import API_KEY_NOT_FOUND, QUOTA_EXCEEDED
from core.refusals.requests import BODY_INVALID
from core.scopes import KEY_EXPLANATIONS, Scope
from services.access import api_keys
from services.events.plan_refusals import is_plan_refusal, record_refusal
from services.people import accounts, own_keys
from services.people.page_urls import KEYS_PATH, NEW_KEY_PATH

# No operations of the API, so not in its document.
router = APIRouter(dependencies=[PUBLIC], include_in_schema=False)

_LIFETIMES = {
    "30": ("30 days", timedelta(days=30)),
    "90": ("90 days", timedelta(days=90)),
    "365": ("A year", timedelta(days=365)),
    "": ("Until I end it", None),
}


@router.get(KEYS_PATH)
@RECORDS.threaded
def show_keys(state: StateOf, member: Member) -> Response:
    """The keys that open something."""
    with state.resources.unit_of_work() as uow:
        return session_page(
            member,
            state,
            "keys.html",
            address=accounts.get(uow, member.user_id).email,
            keys=api_keys.live_of(uow, member.user_id),
            explanations=KEY_EXPLANATIONS,
        )


@router.post(KEYS_PATH)
@RECORDS.threaded
def end_key(state: StateOf, member: FormMember, form: FormOf) -> Response:
    """Revoke one key, and with it the keys that it made."""
    key_id = form.get("key_id", "")
    if not (key_id.isascii() and key_id.isdigit() and len(key_id) <= len(str(ids.MAX_ID))):
        raise API_KEY_NOT_FOUND()
    with state.resources.unit_of_work() as uow:
        api_keys.revoke(uow, key_id=min(int(key_id), ids.MAX_ID), user_id=member.user_id)
    return redirect_to_path(state, KEYS_PATH)


@router.get(NEW_KEY_PATH)
@RECORDS.threaded
def show_new_key(state: StateOf, member: RecentMember) -> Response:
    return _form(state, member, {"lifetime": "90", "reach": "chosen"})


@router.post(NEW_KEY_PATH)
@RECORDS.threaded
def make_key(state: StateOf, member: RecentFormMember, form: FormOf) -> Response:
    """Make the key and show it, once: the answer is no redirect, since a URL must not hold it."""
    scopes = None if form.get("reach") == "all" else _ticked(form)
    if scopes == []:
        return _form(state, member, form, "Tick what the key may do.")
    if form.get("lifetime") not in _LIFETIMES:
        raise BODY_INVALID(place="body.lifetime", rule="one of those that the page offers")
    _, lifetime = _LIFETIMES[form["lifetime"]]
    make = partial(
        own_keys.make,
        name=form.get("name", ""),
        scopes=scopes,
        expires_at=None if lifetime is None else clock.now() + lifetime,
        request_id=current_request_id(),
    )
    try:
        with state.resources.unit_of_work() as uow:
            key, secret = make(uow, state.resources.settings, member.caller)
            name = key.name
    except DomainError as error:
        if error.kind is not Kind.INVALID and error.code != QUOTA_EXCEEDED.code:
            raise
        if is_plan_refusal(error.code):
            with state.resources.unit_of_work() as uow:
                record_refusal(uow, member.user_id, error.code)
        return _form(state, member, form, error.message)
    return session_page(member, state, "key_made.html", name=name, secret=secret)


def _ticked(form: FormFields) -> list[Scope]:
    return [scope for scope in KEY_EXPLANATIONS if f"scope.{scope}" in form]


def _form(
    state: State, member: PageSession, form: FormFields, problem: str | None = None
) -> Response:
    values: dict[str, Any] = {
        "problem": problem,
        "name": form.get("name", ""),
        "reach": form.get("reach"),
        "ticked": _ticked(form),
        "lifetime": form.get("lifetime"),
        "explanations": KEY_EXPLANATIONS,
        "lifetimes": {value: label for value, (label, _) in _LIFETIMES.items()},
    }
    status = 200 if problem is None else 422
    return session_page(member, state, "new_key.html", status=status, **values)
