"""What an owner sets of one list, and its end."""

from fastapi import APIRouter
from fastapi.responses import Response

from api.access.requirements import PUBLIC
from api.console.assets import CONSOLE_PATH
from api.console.navigation import list_path
from api.console.of_lists.list_forms import PLACES, PROVIDERS, list_changes, settings_form
from api.console.own_lists import own_list
from api.console.typed_forms import TypedForm
from api.console.visits import ConsoleVisit, FormVisit, Visit
from api.limits.bulkheads import RECORDS
from api.limits.shares import ACTS_BY_LIST
from api.list_answers import list_response
from api.parameters import ListId
from api.schemas.lists import Channel
from core.errors import DomainError
from services.mailing import lists

# No operations of the API, so not in its document.
router = APIRouter(
    prefix=f"{CONSOLE_PATH}/lists/{{list_id}}", dependencies=[PUBLIC], include_in_schema=False
)


@router.get("/settings")
@RECORDS.threaded
def show_settings(visit: Visit, list_id: ListId) -> Response:
    shown = _shown(visit, list_id)
    return _settings_page(visit, shown, settings_form(shown))


@router.post("/settings")
@ACTS_BY_LIST.threaded("list_id")
def change_settings(visit: FormVisit, list_id: ListId) -> Response:
    """Set what the form has other than the list."""
    shown = _shown(visit, list_id)
    try:
        changes = list_changes(visit.form, shown).sent()
        with visit.unit_of_work() as uow:
            mailing_list = own_list(uow, visit.caller, list_id)
            lists.change(uow, mailing_list, changes, visit.state.challenges.configured)
    except DomainError as error:
        return _settings_page(visit, shown, visit.refused(error, PLACES))
    notice = "The list is changed." if changes else "Nothing was to be changed."
    return visit.done(f"{list_path(shown.id)}/settings", notice)


@router.get("/archive")
@RECORDS.threaded
def show_archive(visit: Visit, list_id: ListId) -> Response:
    """What it means to archive the list, before it is done."""
    return visit.form_page("archive_list.html", TypedForm(), list=_shown(visit, list_id))


@router.post("/archive")
@ACTS_BY_LIST.threaded("list_id")
def archive_list(visit: FormVisit, list_id: ListId) -> Response:
    with visit.unit_of_work() as uow:
        mailing_list = own_list(uow, visit.caller, list_id)
        lists.archive(uow, mailing_list)
        title = mailing_list.title
    return visit.done(f"{CONSOLE_PATH}/lists", f"The list “{title}” is archived.")


def _shown(visit: ConsoleVisit, list_id: int) -> Channel:
    with visit.unit_of_work() as uow:
        return list_response(uow, visit.state, own_list(uow, visit.caller, list_id))


def _settings_page(visit: ConsoleVisit, shown: Channel, form: TypedForm) -> Response:
    able = visit.state.challenges.configured
    # One that is set up no more is shown as long as the list has it.
    names = [name for name in PROVIDERS if name in able or name == shown.challenge_provider]
    providers = [("", "None"), *((name, PROVIDERS[name]) for name in names)]
    return visit.form_page("list_settings.html", form, list=shown, providers=providers)
