"""One member of a list: what is known of them, and what an owner does about them."""

from dataclasses import dataclass

from fastapi import APIRouter
from fastapi.responses import Response

from api.access import actors
from api.access.requirements import PUBLIC
from api.console.assets import CONSOLE_PATH
from api.console.navigation import list_path
from api.console.of_members.member_forms import PLACES, field_inputs, member_changes, member_form
from api.console.of_members.member_words import (
    SOURCES,
    STATUSES,
    TIERS,
    consent_words,
    history_lines,
)
from api.console.own_lists import own_list
from api.console.typed_forms import TypedForm
from api.console.visits import ConsoleVisit, FormVisit, Visit
from api.limits.bulkheads import RECORDS
from api.limits.shares import ACTS_BY_LIST
from api.list_answers import list_response
from api.parameters import Cursor, ListId, PathId
from api.schemas.subscriptions import SubscriptionRecord, member_record
from core.errors import DomainError
from models import MailingList, Subscription
from services.mailing import lists
from services.mailing.attributes import fields, member_attributes
from services.mailing.consent import member_consent
from services.mailing.subscriptions import members, transfers
from services.paging import PageRequest
from services.people import accounts
from storage.unit_of_work import UnitOfWork

# No operations of the API, so not in its document.
router = APIRouter(
    prefix=f"{CONSOLE_PATH}/lists/{{list_id}}/members/{{user_id}}",
    dependencies=[PUBLIC],
    include_in_schema=False,
)

ENTRIES_ON_PAGE = 20
LISTS_TO_CHOOSE = 100


@dataclass(frozen=True)
class _Held:
    """The member of the page, in an open transaction."""

    mailing_list: MailingList
    record: Subscription
    shown: SubscriptionRecord


def _hold(uow: UnitOfWork, visit: ConsoleVisit, list_id: int, user_id: int) -> _Held:
    """Raises ``list.not_found``, ``member.not_found``."""
    mailing_list = own_list(uow, visit.caller, list_id)
    record = members.get(uow, mailing_list, user_id)
    person = accounts.get(uow, user_id)
    attributes = member_attributes.read(uow, mailing_list.user_id, [record.tag_ids])
    return _Held(mailing_list, record, member_record(record, person, attributes))


@router.get("")
@RECORDS.threaded
def show_member(visit: Visit, list_id: ListId, user_id: PathId, cursor: Cursor = None) -> Response:
    """One member, in any status, with history and consent."""
    return _member_page(visit, list_id, user_id, cursor=cursor)


@router.post("")
@ACTS_BY_LIST.threaded("list_id")
def change_member(visit: FormVisit, list_id: ListId, user_id: PathId) -> Response:
    """Set what the form has other than the member."""
    try:
        with visit.unit_of_work() as uow:
            held = _hold(uow, visit, list_id, user_id)
            own = fields.list_of(uow, visit.user_id)
            changes = member_changes(visit.form, held.shown, own)
            actor = actors.owner_actor(visit.request, visit.caller)
            members.update(uow, held.mailing_list, user_id, changes.edit(), actor)
    except DomainError as error:
        return _member_page(visit, list_id, user_id, visit.refused(error, PLACES))
    notice = "The member is changed." if changes.sent() else "Nothing was to be changed."
    return visit.done(_path(list_id, user_id), notice)


@router.post("/email")
@ACTS_BY_LIST.threaded("list_id")
def switch_mail(visit: FormVisit, list_id: ListId, user_id: PathId) -> Response:
    """Switch the member's mail off, or on again where they did not opt out."""
    enabled = visit.form.get("enabled") == "yes"
    try:
        with visit.unit_of_work() as uow:
            mailing_list = own_list(uow, visit.caller, list_id)
            keyring = visit.state.resources.keyring
            actor = actors.owner_actor(visit.request, visit.caller)
            members.set_email(uow, keyring, mailing_list, user_id, actor, enabled=enabled)
    except DomainError as error:
        return _refused_act(visit, list_id, user_id, error)
    return visit.done(_path(list_id, user_id), f"Mail is {'on' if enabled else 'off'}.")


@router.post("/move")
@ACTS_BY_LIST.threaded("list_id")
def move_member(visit: FormVisit, list_id: ListId, user_id: PathId) -> Response:
    """Move the member to another list of the owner's."""
    try:
        with visit.unit_of_work() as uow:
            source = own_list(uow, visit.caller, list_id)
            target_id = lists.id_of(visit.form.get("list", ""))
            target = own_list(uow, visit.caller, target_id or 0)
            settings = visit.state.resources.settings
            transfers.transfer(
                uow,
                settings.keyring,
                source,
                target,
                user_id,
                actor=actors.owner_actor(visit.request, visit.caller),
                settings=settings,
            )
            path, title = _path(target.id, user_id), target.title
    except DomainError as error:
        return _refused_act(visit, list_id, user_id, error)
    return visit.done(path, f"The member is on “{title}” now.")


@router.get("/remove")
@RECORDS.threaded
def ask_to_remove(visit: Visit, list_id: ListId, user_id: PathId) -> Response:
    """What it means to remove the member, before it is done."""
    with visit.unit_of_work() as uow:
        held = _hold(uow, visit, list_id, user_id)
        shown = list_response(uow, visit.state, held.mailing_list)
    return visit.page("remove_member.html", list=shown, member=held.shown)


@router.post("/remove")
@ACTS_BY_LIST.threaded("list_id")
def remove_member(visit: FormVisit, list_id: ListId, user_id: PathId) -> Response:
    with visit.unit_of_work() as uow:
        mailing_list = own_list(uow, visit.caller, list_id)
        actor = actors.owner_actor(visit.request, visit.caller)
        members.remove(uow, mailing_list, user_id, actor)
    return visit.done(_path(list_id, user_id), "The member is removed from the list.")


def _path(list_id: int, user_id: int) -> str:
    return f"{list_path(list_id)}/members/{user_id}"


def _refused_act(visit: ConsoleVisit, list_id: int, user_id: int, error: DomainError) -> Response:
    """The page with why an act beside its form was refused."""
    refused = visit.refused(error)
    return _member_page(visit, list_id, user_id, problem=refused.problem, status=refused.status)


def _member_page(
    visit: ConsoleVisit,
    list_id: int,
    user_id: int,
    form: TypedForm | None = None,
    *,
    problem: str | None = None,
    status: int = 200,
    cursor: str | None = None,
) -> Response:
    with visit.unit_of_work() as uow:
        held = _hold(uow, visit, list_id, user_id)
        own_fields = fields.list_of(uow, visit.user_id)
        wanted = PageRequest(ENTRIES_ON_PAGE, cursor=cursor)
        history = members.history(uow, held.mailing_list, user_id, wanted)
        consent = member_consent.page(uow, held.record, PageRequest(ENTRIES_ON_PAGE))
        others = lists.list_of(uow, visit.user_id, PageRequest(LISTS_TO_CHOOSE)).rows
        form = form or TypedForm(member_form(held.shown).typed, problem=problem, status=status)
        return visit.form_page(
            "member.html",
            form,
            list=list_response(uow, visit.state, held.mailing_list),
            member=held.shown,
            status_words=STATUSES.get(held.shown.status, held.shown.status),
            source_words=SOURCES.get(held.shown.source, held.shown.source),
            fields=field_inputs(own_fields, form),
            tiers=[*TIERS.items()],
            targets=[(each.id, each.title) for each in others if each.id != list_id],
            history=history_lines(history.rows),
            history_cursor=history.next_cursor,
            consent=[(consent_words(each), each) for each in consent.rows],
            cursor=cursor,
        )
