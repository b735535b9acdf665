"""The members of a list: found, added one by one, and each with history and consent."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any
from urllib.parse import urlencode

import orjson
from fastapi.responses import Response

from api.auth import actors
from api.auth.member_reads import count_members_page
from api.bodies.page_forms import FormFields
from api.console.assets import CONSOLE_PATH
from api.console.console_display import SOURCES, TIERS
from api.console.members import filter_form
from api.console.members.filter_form import Choice, FilterDraft
from api.console.members.forms import (
    MAX_COLUMNS,
    SELECTION_PLACES,
    MemberSelection,
    SelectionOf,
    as_json,
)
from api.console.members.views import consent_words, history_line, others_words
from api.console.navigation import get_list_path
from api.console.requests import Console, ConsoleForm, ConsoleRequest, EmptyForm, build_router
from api.console.typed_forms import TypedForm, parse_body, read_text
from api.limits.bulkheads import RECORDS
from api.limits.shares import SEARCHES_BY_CALLER, threaded_by_list
from api.paging import Cursor
from api.record_ids import ListId, PathId
from api.schemas.subscriptions import MemberChanges, MemberUpsert, SubscriptionRecord, member_record
from api.state import Transaction
from core.errors import DomainError, FieldProblem
from core.errors.mailing import (
    FIELD_VALUE,
    MEMBER_DENIED,
    SUBSCRIPTION_OPTED_OUT,
    TAG_TOO_MANY_OF_MEMBER,
)
from core.errors.people import EMAIL_INVALID
from models import FieldType, MailingList, MemberField, Subscription
from models import SubscriptionStatus as Status
from services.accounts import accounts, email_addresses
from services.paging import PageOfRows, PageRequest
from services.subscriptions import fields, lists, member_attributes, segments
from services.subscriptions.consent import evidence, networks
from services.subscriptions.fields import FieldValue, ValueRefused
from services.subscriptions.filters import member_filter, searching
from services.subscriptions.members import member_pages, members
from services.subscriptions.members.changes import Actor
from services.subscriptions.members.member_pages import MemberFilters
from storage.unit_of_work import UnitOfWork

router = build_router(f"{CONSOLE_PATH}/lists/{{list_id}}/members")

STATUSES = {
    "active": "Active",
    "pending": "Not confirmed yet",
    "unsubscribed": "Left the list",
    "removed": "Removed",
}

MEMBERS_ON_PAGE = 40
SEGMENTS_TO_CHOOSE = 100
_OF_ADDRESS = {
    EMAIL_INVALID.code: "email",
    SUBSCRIPTION_OPTED_OUT.code: "email",
    MEMBER_DENIED.code: "email",
}


@router.get("")
async def show_members(
    console: Console, list_id: ListId, selection: SelectionOf, cursor: Cursor = None
) -> Response:
    work = partial(_members_page, console, list_id, selection, cursor)
    if selection.is_plain:
        return await RECORDS.run(work)
    return await SEARCHES_BY_CALLER.run(console.user_id, work)


def _members_page(
    console: ConsoleRequest, list_id: int, selection: MemberSelection, cursor: str | None
) -> Response:
    form, draft = TypedForm(selection.typed), selection.draft
    found: PageOfRows[dict[str, Any]] = PageOfRows([], None)
    total, written = None, None
    wanted = PageRequest(MEMBERS_ON_PAGE, cursor=cursor)
    with console.unit_of_work() as uow:
        mailing_list = console.get_own_list(uow, list_id)
        kept = segments.list_segments(uow, mailing_list, PageRequest(SEGMENTS_TO_CHOOSE)).rows
        chosen = selection.segment_id
        if chosen is not None and chosen not in {each.id for each in kept}:
            kept.append(segments.get_segment(uow, mailing_list.id, chosen))
        choices = filter_form.choices_of(uow, mailing_list)
        own_fields = fields.read_own_fields(uow, console.user_id).by_key
        draft = filter_form.with_rows(draft, choices)
    segment_choices = [(str(each.id), each.name) for each in kept]
    try:
        with console.unit_of_work() as uow:
            if (own := draft.written()) is not None:
                # An error names its place in this filter, and a row has that place.
                member_filter.read(uow, mailing_list, own)
            written = selection.written(uow, mailing_list)
        found, total = _found(console, mailing_list, selection, written, wanted)
        count_members_page(console.state, console.caller)
    except DomainError as error:
        form = form.add_error(error, SELECTION_PLACES)
        if draft.mark(error):
            form = replace(form, errors={})
    return console.render_form(
        "members.html",
        form,
        draft=draft,
        choices=choices,
        chips=_chips(selection, draft, choices, dict(segment_choices)),
        list=mailing_list,
        segments=segment_choices,
        fields=[(key, each.label) for key, each in own_fields.items()],
        columns=[(key, own_fields[key].label) for key in selection.columns if key in own_fields],
        most_columns=MAX_COLUMNS,
        members=found.rows,
        next_cursor=found.next_cursor,
        total=total,
        selection=selection,
        written=None if written is None else as_json(written),
        limit=MEMBERS_ON_PAGE,
        search={"filter": written, "limit": MEMBERS_ON_PAGE} if written else None,
        statuses=STATUSES,
        tiers=TIERS,
    )


def _chips(
    selection: MemberSelection,
    draft: FilterDraft,
    choices: Mapping[str, Choice],
    segment_names: Mapping[str, str],
) -> list[tuple[str, str]]:
    """Return what was chosen, in words, each with the query that leaves it out."""
    typed = selection.typed
    words = {
        "q": f"Address or name contains {typed.get('q')}",
        "status": f"Status is {STATUSES.get(typed.get('status', ''), typed.get('status'))}",
        "type": f"Tier is {TIERS.get(typed.get('type', ''), typed.get('type'))}",
        "tag": f"Tag is {typed.get('tag')}",
        "since": f"Joined on or after {typed.get('since')}",
        "segment": f"Segment {segment_names.get(typed.get('segment', ''))}",
    }
    found = [(words[name], _without(typed, name)) for name in words if name in typed]
    if draft.group is not None:
        for said, rest in filter_form.chips_of(draft.group, choices):
            left = {} if rest is None else {"filter": orjson.dumps(rest).decode()}
            found.append((said, _without({**typed, **left}, "" if left else "filter")))
    return found


def _without(typed: Mapping[str, str], name: str) -> str:
    return f"?{urlencode({each: text for each, text in typed.items() if each != name})}"


def _found(
    console: ConsoleRequest,
    mailing_list: MailingList,
    selection: MemberSelection,
    written: dict[str, Any] | None,
    wanted: PageRequest,
) -> tuple[PageOfRows[dict[str, Any]], int | None]:
    """Return the page, and the number of all if that can be told soon.

    Raises ``filter.invalid``, ``filter.too_slow``, ``cursor.invalid``.
    """
    status = selection.typed.get("status", Status.ACTIVE)
    if selection.is_plain and status in [*Status]:
        filters, database = MemberFilters(Status(status)), console.state.resources.database
        listed = member_pages.read_member_page(
            database, console.caller, mailing_list.id, filters, wanted
        )
        return listed.page, listed.total
    with console.unit_of_work() as uow:
        read = member_filter.read(uow, mailing_list, written)
        found = searching.search(uow, mailing_list.id, read, wanted)
    return found.page, found.total


@router.get("/new")
def show_new_member(console: Console, list_id: ListId, form: EmptyForm) -> Response:
    with console.unit_of_work() as uow:
        mailing_list = console.get_own_list(uow, list_id)
    return console.render_form("new_member.html", form, list=mailing_list, tiers=[*TIERS.items()])


@router.post("/new")
@threaded_by_list
def add_member(console: ConsoleForm, list_id: ListId) -> Response:
    """Add one person, or change the member who has this address."""
    form = console.form
    try:
        email = email_addresses.normalise_address(form.get("email", ""))
        named = {"name": read_text(form, "name"), "type": form.get("type", "")}
        body = parse_body(MemberUpsert, {key: value for key, value in named.items() if value})
        with console.unit_of_work() as uow:
            mailing_list = console.get_own_list(uow, list_id)
            member = members.upsert_member(uow, mailing_list, email, body.edit(), _actor(console))
            user_id = member.user_id
    except DomainError as error:
        return show_new_member(console, list_id, console.add_error(error, _OF_ADDRESS))
    return console.redirect_with_notice(_path(list_id, user_id), f"{email} is on the list.")


def _actor(console: ConsoleRequest) -> Actor:
    return actors.owner_actor(console.request, console.caller)


def _path(list_id: int, user_id: int) -> str:
    return f"{get_list_path(list_id)}/members/{user_id}"


ENTRIES_ON_PAGE = 20
LISTS_TO_CHOOSE = 100
# The form fields at which errors without a field of their own are shown.
MEMBER_PLACES = {TAG_TOO_MANY_OF_MEMBER.code: "tags"}
_OF_FIELD = "fields."
_INPUTS = {FieldType.NUMBER.value: "number", FieldType.DATE.value: "date"}


@dataclass(frozen=True)
class _Held:
    mailing_list: MailingList
    record: Subscription
    shown: SubscriptionRecord


def _hold(uow: UnitOfWork, console: ConsoleRequest, list_id: int, user_id: int) -> _Held:
    """Return the member; raises ``list.not_found``, ``member.not_found``."""
    mailing_list = console.get_own_list(uow, list_id)
    record = members.get_member(uow, mailing_list, user_id)
    person = accounts.get_user(uow, user_id)
    attributes = member_attributes.read_attributes(uow, mailing_list.user_id, [record.tag_ids])
    return _Held(mailing_list, record, member_record(record, person, attributes))


@router.get("/{user_id}")
def show_member(
    console: Console, list_id: ListId, user_id: PathId, form: EmptyForm, cursor: Cursor = None
) -> Response:
    with console.unit_of_work() as uow:
        held = _hold(uow, console, list_id, user_id)
        own_fields = fields.list_fields(uow, console.user_id)
        wanted = PageRequest(ENTRIES_ON_PAGE, cursor=cursor)
        history = members.list_history(uow, held.mailing_list, user_id, wanted)
        agreed = evidence.list_evidence(uow, held.record, PageRequest(ENTRIES_ON_PAGE))
        of_networks = networks.count_others(uow, held.record, agreed.rows)
        others = lists.list_choices(uow, console.user_id, LISTS_TO_CHOOSE)
    shown = held.shown
    typed = {
        "name": shown.name or "",
        "type": shown.type,
        "paid_expiry": _day_of(shown.paid_expiry),
        "tags": ", ".join(shown.tags or ()),
    }
    values = (shown.fields or {}).items()
    form = form.fill(typed | {f"{_OF_FIELD}{key}": fields.as_text(each) for key, each in values})
    return console.render_form(
        "member.html",
        form,
        list=held.mailing_list,
        member=shown,
        status_words=STATUSES.get(shown.status, shown.status),
        source_words=SOURCES.get(shown.source, shown.source),
        fields=[_field_input(each, form) for each in own_fields],
        tiers=[*TIERS.items()],
        targets=[(each.id, each.title) for each in others if each.id != list_id],
        history=[history_line(event) for event in history.rows],
        history_cursor=history.next_cursor,
        consent=[
            (consent_words(each), others_words(each, of_networks), each) for each in agreed.rows
        ],
    )


@router.post("/{user_id}")
@threaded_by_list
def change_member(console: ConsoleForm, list_id: ListId, user_id: PathId) -> Response:
    """Change what the form has other than the member."""
    try:
        with console.unit_of_work() as uow:
            held = _hold(uow, console, list_id, user_id)
            own = fields.list_fields(uow, console.user_id)
            changes = member_changes(console.form, held.shown, own)
            members.update_member(uow, held.mailing_list, user_id, changes.edit(), _actor(console))
    except DomainError as error:
        return show_member(console, list_id, user_id, console.add_error(error, MEMBER_PLACES))
    notice = "The member is changed." if changes.sent() else "Nothing was to be changed."
    return console.redirect_with_notice(_path(list_id, user_id), notice)


def member_changes(
    form: FormFields, shown: SubscriptionRecord, own: Iterable[MemberField]
) -> MemberChanges:
    """Return the changes that the form has; raises ``body.invalid``, ``field.value``."""
    values: dict[str, Any] = {
        "name": read_text(form, "name"),
        "type": form.get("type", ""),
        "tags": [each for part in form.get("tags", "").split(",") if (each := part.strip())],
    }
    changed = {name: value for name, value in values.items() if value != getattr(shown, name)}
    # A day stands for its first moment; one that was not touched keeps its time of day.
    day = form.get("paid_expiry", "").strip()
    if day != _day_of(shown.paid_expiry):
        changed["paid_expiry"] = f"{day}T00:00:00Z" if day else None
    had, given = shown.fields or {}, _typed_fields(form, own)
    differing = {key: value for key, value in given.items() if value != had.get(key)}
    return parse_body(MemberChanges, changed | ({"fields": differing} if differing else {}))


def _typed_fields(form: FormFields, own: Iterable[MemberField]) -> dict[str, FieldValue | None]:
    """Return the values of fields as a program would send them; raises ``field.value``."""
    found: dict[str, FieldValue | None] = {}
    problems = []
    for field in own:
        name = f"{_OF_FIELD}{field.key}"
        if name not in form:
            continue
        try:
            found[field.key] = fields.parse_value(field, form[name])
        except ValueRefused as error:
            problems.append(FieldProblem(f"body.{name}", "field.value", str(error)))
    if problems:
        rules = "; ".join(f"{each.field}: {each.message}" for each in problems)
        raise FIELD_VALUE(rules=rules, problems=tuple(problems))
    return found


def _day_of(moment: datetime | None) -> str:
    return "" if moment is None else moment.date().isoformat()


@router.post("/{user_id}/email")
@threaded_by_list
def switch_mail(console: ConsoleForm, list_id: ListId, user_id: PathId) -> Response:
    """Switch the member's mail off, or on again where they did not opt out."""
    enabled = console.form.get("enabled") == "yes"

    def switch(uow: UnitOfWork, mailing_list: MailingList) -> tuple[int, str]:
        actor = _actor(console)
        members.set_email(uow, mailing_list, user_id, actor, enabled=enabled)
        return list_id, f"Mail is {'on' if enabled else 'off'}."

    return _done_beside_form(console, list_id, user_id, switch)


@router.post("/{user_id}/move")
@threaded_by_list
def move_member(console: ConsoleForm, list_id: ListId, user_id: PathId) -> Response:

    def move(uow: UnitOfWork, source: MailingList) -> tuple[int, str]:
        target_id = lists.parse_list_id(console.form.get("list", ""))
        target = console.get_own_list(uow, target_id or 0)
        members.transfer_member(uow, source, target, user_id, actor=_actor(console))
        return target.id, f"The member is on “{target.title}” now."

    return _done_beside_form(console, list_id, user_id, move)


def _done_beside_form(
    console: ConsoleRequest,
    list_id: int,
    user_id: int,
    work: Callable[[UnitOfWork, MailingList], tuple[int, str]],
) -> Response:
    """Do one of the things beside the form; an error shows the page with its reason.

    ``work`` returns the list on whose page of the member the notice is shown, and the notice.
    """
    try:
        with console.unit_of_work() as uow:
            shown_on, notice = work(uow, console.get_own_list(uow, list_id))
    except DomainError as error:
        refused = console.add_error(error)
        form = TypedForm(problem=refused.problem, status=refused.status)
        return show_member(console, list_id, user_id, form)
    return console.redirect_with_notice(_path(shown_on, user_id), notice)


@router.get("/{user_id}/remove")
def ask_to_remove(console: Console, uow: Transaction, list_id: ListId, user_id: PathId) -> Response:
    held = _hold(uow, console, list_id, user_id)
    return console.render_page("remove_member.html", list=held.mailing_list, member=held.shown)


@router.post("/{user_id}/remove")
@threaded_by_list
def remove_member(
    console: ConsoleForm, uow: Transaction, list_id: ListId, user_id: PathId
) -> Response:
    members.remove_member(uow, console.get_own_list(uow, list_id), user_id, _actor(console))
    return console.redirect_with_notice(
        _path(list_id, user_id), "The member is removed from the list."
    )


def _field_input(field: MemberField, form: TypedForm) -> dict[str, Any]:
    """Return an owner's field as the template draws it.

    A choice that the field has lost stays one of the choices of a member who has it.
    """
    name = f"{_OF_FIELD}{field.key}"
    value, choices = form.typed.get(name, ""), []
    if field.type == FieldType.BOOLEAN:
        choices = [("", ""), ("true", "Yes"), ("false", "No")]
    elif field.type == FieldType.CHOICE:
        names = field.choices if value in {"", *field.choices} else [*field.choices, value]
        choices = [("", ""), *((each, each) for each in names)]
    return {
        "name": name,
        "label": field.label,
        "hint": field.description or "",
        "type": _INPUTS.get(field.type, "text"),
        "choices": choices,
    }
