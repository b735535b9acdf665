"""The file of a new import: it is stored while it arrives, and looked at by a dry run."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from fastapi import APIRouter, Request
from fastapi.responses import Response

from api.access.browsers import CSRF_FIELD, require_csrf
from api.access.page_sessions import redirect_to_path
from api.access.requirements import PUBLIC
from api.bodies.media_types import MULTIPART, media_type
from api.bodies.upload_stream import store_upload
from api.console.assets import CONSOLE_PATH
from api.console.of_imports.import_forms import KINDS, PLACES, UploadChoice, upload_choice
from api.console.own_lists import own_list
from api.console.typed_forms import TypedForm
from api.console.visits import ConsoleVisit, Visit
from api.limits.bulkheads import RECORDS
from api.request_ids import current_request_id
from core.errors import DomainError
from core.lanes import Lane
from core.refusals.requests import BODY_NOT_MULTIPART
from models import ImportKind, Plan
from services.access.caller import Caller
from services.mailing import lists
from services.mailing.imports import accept
from services.paging import WHOLE
from services.people import accounts
from storage.unit_of_work import UnitOfWork

# No operations of the API, so not in its document.
router = APIRouter(
    prefix=f"{CONSOLE_PATH}/imports/new", dependencies=[PUBLIC], include_in_schema=False
)


@router.get("")
@RECORDS.threaded
def show_new_import(visit: Visit, list_id: str = "") -> Response:
    """The form for a file, for the list that the query may name."""
    typed = {"list_id": list_id, "kind": ImportKind.MEMBERS.value}
    return _page(visit, TypedForm(typed))


@router.post("")
async def upload_import(request: Request, visit: Visit) -> Response:
    """Store the file, and have it looked at."""
    typed: dict[str, str] = {}
    try:
        import_id = await _accept(request, visit, typed)
    except DomainError as error:
        return await RECORDS.run(_refused, replace(visit, form=typed), error)
    return redirect_to_path(visit.state, f"{CONSOLE_PATH}/imports/{import_id}")


async def _accept(request: Request, visit: ConsoleVisit, typed: dict[str, str]) -> int:
    """The import of the file. ``typed`` gets what the form has beside it."""
    state, resources = visit.state, visit.state.resources
    if media_type(request.headers.get("content-type", "")) != MULTIPART:
        require_csrf(request, state, visit.member.cookie)
        raise BODY_NOT_MULTIPART()
    choices: list[UploadChoice] = []

    async def check(fields: Mapping[str, str]) -> None:
        typed.update(fields)
        require_csrf(request, state, visit.member.cookie, fields.get(CSRF_FIELD))
        choices.append(upload_choice(fields))
        state.lane_ages.check(Lane.BULK, waits=False)
        await state.in_unit_of_work(partial(_check, visit, choices[0].list_id))

    file, forget = accept.new_file(resources), partial(accept.forget_file, resources)
    received = await store_upload(
        request, file.writer, None, forget, caller_id=visit.user_id, check=check
    )
    accepted = await RECORDS.run(
        accept.accept_file,
        resources,
        visit.user_id,
        choices[0].list_id,
        file=file,
        filename=received.filename,
        options=choices[0].options,
        request_id=current_request_id(),
    )
    return accepted.subject_id


def _check(visit: ConsoleVisit, list_id: int, uow: UnitOfWork) -> None:
    caller: Caller = visit.caller
    own_list(uow, caller, list_id)
    accept.check_upload(uow, visit.state.resources.settings, caller, list_id, dry_run=True)


def _refused(visit: ConsoleVisit, error: DomainError) -> Response:
    return _page(visit, visit.refused(error, PLACES))


def _page(visit: ConsoleVisit, form: TypedForm) -> Response:
    with visit.unit_of_work() as uow:
        found = lists.list_of(uow, visit.user_id, WHOLE).rows
        is_paid = accounts.get(uow, visit.user_id).plan == Plan.PAID
    own = [(str(each.id), each.title) for each in found]
    if len(own) > 1:
        own.insert(0, ("", "Choose a list"))
    return visit.form_page("new_import.html", form, lists=own, kinds=KINDS, is_paid=is_paid)
