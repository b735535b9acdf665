"""An owner's API keys: those that open something, a new one, and the end of one."""

from fastapi import APIRouter
from fastapi.responses import Response

from api.access.requirements import PUBLIC
from api.console.of_programs.key_forms import (
    PLACES,
    USUAL,
    ShownKey,
    key_choice,
    lifetime_choices,
    scope_boxes,
)
from api.console.typed_forms import TypedForm
from api.console.visits import ConsoleVisit, FormVisit, RecentFormVisit, RecentVisit, Visit
from api.limits.bulkheads import RECORDS
from api.parameters import PathId
from api.request_ids import current_request_id
from core.errors import DomainError
from core.refusals.access import API_KEY_NOT_FOUND
from services.access import api_keys
from services.people import own_keys
from services.people.page_urls import KEYS_PATH, NEW_KEY_PATH

# No operations of the API, so not in its document.
router = APIRouter(dependencies=[PUBLIC], include_in_schema=False)


@router.get(KEYS_PATH)
@RECORDS.threaded
def show_keys(visit: Visit) -> Response:
    """The keys that open something."""
    return visit.page("keys.html", keys=_live(visit))


@router.get(NEW_KEY_PATH)
@RECORDS.threaded
def show_new_key(visit: RecentVisit) -> Response:
    return _new_page(visit, TypedForm(USUAL))


@router.post(NEW_KEY_PATH)
@RECORDS.threaded
def make_key(visit: RecentFormVisit) -> Response:
    """Make the key and show it, once: the answer is no redirect, since a URL must not hold it."""
    try:
        choice, request_id = key_choice(visit.form), current_request_id()
        with visit.unit_of_work() as uow:
            settings, caller = visit.state.resources.settings, visit.caller
            key, secret = own_keys.make(uow, settings, caller, **choice, request_id=request_id)
    except DomainError as error:
        return _new_page(visit, visit.refused(error, PLACES))
    return visit.page("key_made.html", each=ShownKey(key), secret=secret)


@router.get(f"{KEYS_PATH}/{{key_id}}/end")
@RECORDS.threaded
def show_key_end(visit: Visit, key_id: PathId) -> Response:
    """What it means to end the key, before it is done."""
    return visit.page("end_key.html", each=_own(visit, key_id))


@router.post(f"{KEYS_PATH}/{{key_id}}/end")
@RECORDS.threaded
def end_key(visit: FormVisit, key_id: PathId) -> Response:
    """Revoke one key, and with it the keys that it made."""
    label = _own(visit, key_id).label
    with visit.unit_of_work() as uow:
        api_keys.revoke(uow, key_id=key_id, user_id=visit.user_id)
    return visit.done(KEYS_PATH, f"The key “{label}” is ended.")


def _live(visit: ConsoleVisit) -> list[ShownKey]:
    with visit.unit_of_work() as uow:
        return [ShownKey(key) for key in api_keys.live_of(uow, visit.user_id)]


def _own(visit: ConsoleVisit, key_id: int) -> ShownKey:
    """One that opens something; raises ``api_key.not_found``."""
    for each in _live(visit):
        if each.key.id == key_id:
            return each
    raise API_KEY_NOT_FOUND()


def _new_page(visit: ConsoleVisit, form: TypedForm) -> Response:
    return visit.form_page("new_key.html", form, scopes=scope_boxes(), lifetimes=lifetime_choices())
