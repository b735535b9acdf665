"""An owner's lists: all of them, one of them with how it grows, and a new one."""

from datetime import timedelta

from fastapi import APIRouter
from fastapi.responses import Response

from api.access.requirements import PUBLIC
from api.console.assets import CONSOLE_PATH
from api.console.navigation import list_path
from api.console.of_lists.growth_plots import growth_plot
from api.console.of_lists.list_forms import PLACES, new_list_body
from api.console.of_members.member_words import SOURCES, TIERS
from api.console.own_lists import own_list
from api.console.typed_forms import TypedForm
from api.console.visits import FormVisit, Visit
from api.limits.bulkheads import RECORDS
from api.list_answers import list_response, list_responses
from api.parameters import Cursor, ListId
from core import clock
from core.errors import DomainError
from services.mailing import lists, member_figures
from services.mailing.member_figures import DayRange, FiguresBy
from services.paging import PageRequest

# No operations of the API, so not in its document.
router = APIRouter(prefix=f"{CONSOLE_PATH}/lists", dependencies=[PUBLIC], include_in_schema=False)

LISTS_ON_PAGE = 50
_PERIODS = {"30": "30 days", "90": "90 days", "365": "A year", "1095": "Three years"}
_USUAL_PERIOD = "30"


@router.get("")
@RECORDS.threaded
def show_lists(visit: Visit, cursor: Cursor = None) -> Response:
    """The owner's lists, newest first."""
    with visit.unit_of_work() as uow:
        wanted = PageRequest(LISTS_ON_PAGE, cursor=cursor)
        found = lists.list_of(uow, visit.user_id, wanted)
        shown = list_responses(uow, visit.state, found.rows)
    return visit.page("lists.html", lists=shown, next_cursor=found.next_cursor, cursor=cursor)


@router.get("/new")
@RECORDS.threaded
def show_new_list(visit: Visit) -> Response:
    return visit.form_page("new_list.html", TypedForm())


@router.post("/new")
@RECORDS.threaded
def make_list(visit: FormVisit) -> Response:
    try:
        body = new_list_body(visit.form)
        with visit.unit_of_work() as uow:
            made = lists.create_own(
                uow,
                visit.state.resources.settings,
                visit.caller,
                title=body.title,
                slug=body.slug,
                fields={"tagline": body.tagline},
                providers=visit.state.challenges.configured,
            )
            list_id, title = made.id, made.title
    except DomainError as error:
        return visit.form_page("new_list.html", visit.refused(error, PLACES))
    return visit.done(list_path(list_id), f"The list “{title}” is made.")


@router.get("/{list_id}")
@RECORDS.threaded
def show_list(visit: Visit, list_id: ListId, days: str = _USUAL_PERIOD) -> Response:
    """One list: how many members it has, by source and tier, and how it grew."""
    period = days if days in _PERIODS else _USUAL_PERIOD
    last = clock.now().date()
    wanted = DayRange(last - timedelta(days=int(period) - 1), last)
    with visit.unit_of_work() as uow:
        mailing_list = own_list(uow, visit.caller, list_id)
        growth = member_figures.read(uow, mailing_list.id, wanted, FiguresBy.DAY)
        by_source = member_figures.members_by(uow, mailing_list.id, FiguresBy.SOURCE)
        by_tier = member_figures.members_by(uow, mailing_list.id, FiguresBy.TIER)
        shown = list_response(uow, visit.state, mailing_list)
    return visit.page(
        "list.html",
        list=shown,
        by_source=[(SOURCES.get(key, key), count) for key, count in by_source.items()],
        by_tier=[(TIERS.get(key, key), count) for key, count in by_tier.items()],
        plot=growth_plot(growth),
        period=period,
        periods=_PERIODS,
    )
