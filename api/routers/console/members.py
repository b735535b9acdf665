"""The members of a list: found by what is known of them, and added one by one."""

from functools import partial
from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response

from api.access import actors
from api.access.requirements import PUBLIC
from api.console.assets import CONSOLE_PATH
from api.console.navigation import list_path
from api.console.of_members.member_selections import (
    PLACES,
    MemberSelection,
    SelectionOf,
    as_json,
)
from api.console.of_members.member_words import STATUSES, TIERS
from api.console.own_lists import own_list
from api.console.typed_forms import TypedForm, body_of_form, text_or_none
from api.console.visits import ConsoleVisit, FormVisit, Visit
from api.limits.bulkheads import RECORDS
from api.limits.shares import ACTS_BY_LIST, SEARCHES_BY_CALLER
from api.list_answers import list_response
from api.parameters import Cursor, ListId
from api.schemas.subscriptions import MemberUpsert
from core.errors import DomainError
from core.refusals.mailing import MEMBER_DENIED, SUBSCRIPTION_OPTED_OUT
from core.refusals.people import EMAIL_INVALID
from models import MailingList, SubscriptionStatus
from services.mailing.filters import searching
from services.mailing.segments import saved
from services.mailing.subscriptions import member_pages, members
from services.mailing.subscriptions.member_pages import MemberFilters
from services.paging import PageOfRows, PageRequest
from services.people import email_addresses
from storage.unit_of_work import UnitOfWork

# No operations of the API, so not in its document.
router = APIRouter(
    prefix=f"{CONSOLE_PATH}/lists/{{list_id}}/members",
    dependencies=[PUBLIC],
    include_in_schema=False,
)

MEMBERS_ON_PAGE = 40
SEGMENTS_TO_CHOOSE = 100
_OF_ADDRESS = {
    EMAIL_INVALID.code: "email",
    SUBSCRIPTION_OPTED_OUT.code: "email",
    MEMBER_DENIED.code: "email",
}


@router.get("")
async def show_members(
    visit: Visit, list_id: ListId, selection: SelectionOf, cursor: Cursor = None
) -> Response:
    """The members who are looked for, newest first."""
    work = partial(_members_page, visit, list_id, selection, cursor)
    if selection.is_plain:
        return await RECORDS.run(work)
    return await SEARCHES_BY_CALLER.run(visit.user_id, work)


def _members_page(
    visit: ConsoleVisit, list_id: int, selection: MemberSelection, cursor: str | None
) -> Response:
    form = TypedForm(selection.typed)
    found: PageOfRows[dict[str, Any]] = PageOfRows([], None)
    total, written = None, None
    wanted = PageRequest(MEMBERS_ON_PAGE, cursor=cursor)
    with visit.unit_of_work() as uow:
        mailing_list = own_list(uow, visit.caller, list_id)
        values = {
            "list": list_response(uow, visit.state, mailing_list),
            "segments": _segments(uow, mailing_list, selection),
        }
    try:
        with visit.unit_of_work() as uow:
            written = selection.written(uow, mailing_list)
        found, total = _found(visit, mailing_list, selection, wanted)
    except DomainError as error:
        form = form.refused(error, PLACES)
    return visit.form_page(
        "members.html",
        form,
        members=found.rows,
        next_cursor=found.next_cursor,
        total=total,
        selection=selection,
        written=None if written is None else as_json(written),
        limit=MEMBERS_ON_PAGE,
        search={"filter": written, "limit": MEMBERS_ON_PAGE} if written else None,
        cursor=cursor,
        statuses=STATUSES,
        tiers=TIERS,
        **values,
    )


def _segments(
    uow: UnitOfWork, mailing_list: MailingList, selection: MemberSelection
) -> list[tuple[str, str]]:
    """The newest segments as choices of the form, and the one that is chosen."""
    newest = saved.list_of(uow, mailing_list, PageRequest(SEGMENTS_TO_CHOOSE)).rows
    chosen = selection.segment_id
    if chosen is not None and chosen not in {each.id for each in newest}:
        newest.append(saved.get(uow, mailing_list.id, chosen))
    return [(str(each.id), each.name) for each in newest]


def _found(
    visit: ConsoleVisit, mailing_list: MailingList, selection: MemberSelection, wanted: PageRequest
) -> tuple[PageOfRows[dict[str, Any]], int | None]:
    """The page, and how many there are in all if that can be told soon.

    Raises ``filter.invalid``, ``filter.too_slow``, ``segment.not_found``, ``cursor.invalid``.
    """
    status = selection.typed.get("status", SubscriptionStatus.ACTIVE)
    if selection.is_plain and status in [*SubscriptionStatus]:
        filters = MemberFilters(SubscriptionStatus(status))
        database = visit.state.resources.database
        listed = member_pages.page(database, visit.caller, mailing_list.id, filters, wanted)
        return listed.page, listed.total
    with visit.unit_of_work() as uow:
        read = selection.read(uow, mailing_list)
        assert read is not None
        found = searching.search(uow, mailing_list.id, read, wanted)
    return found.page, found.total


@router.get("/new")
@RECORDS.threaded
def show_new_member(visit: Visit, list_id: ListId) -> Response:
    return _new_member_page(visit, list_id, TypedForm())


@router.post("/new")
@ACTS_BY_LIST.threaded("list_id")
def add_member(visit: FormVisit, list_id: ListId) -> Response:
    """Add one person, or change the member who has this address."""
    form = visit.form
    try:
        email = email_addresses.normalise(form.get("email", "").strip())
        named = {"name": text_or_none(form, "name"), "type": form.get("type", "")}
        body = body_of_form(MemberUpsert, {key: value for key, value in named.items() if value})
        with visit.unit_of_work() as uow:
            mailing_list = own_list(uow, visit.caller, list_id)
            actor = actors.owner_actor(visit.request, visit.caller)
            settings = visit.state.resources.settings
            member = members.upsert(uow, mailing_list, email, body.edit(), actor, settings=settings)
            user_id = member.user_id
    except DomainError as error:
        return _new_member_page(visit, list_id, visit.refused(error, _OF_ADDRESS))
    return visit.done(f"{list_path(list_id)}/members/{user_id}", f"{email} is on the list.")


def _new_member_page(visit: ConsoleVisit, list_id: int, form: TypedForm) -> Response:
    with visit.unit_of_work() as uow:
        shown = list_response(uow, visit.state, own_list(uow, visit.caller, list_id))
    return visit.form_page("new_member.html", form, list=shown, tiers=[*TIERS.items()])
