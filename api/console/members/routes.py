"""Pages on which an owner searches, adds and changes the members of a list."""

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
from api.console.members import filter_choices, filter_form
from api.console.members.filter_choices import Choice
from api.console.members.filter_form import FilterDraft
from api.console.members.forms import (
    MAX_COLUMNS,
    SELECTION_PLACES,
    MemberSelection,
    Selection,
    format_json,
)
from api.console.members.views import (
    describe_consent,
    describe_event,
    describe_mail,
    describe_network,
)
from api.console.navigation import get_list_path
from api.console.plan_notices import ADDING_MEMBERS_TEXT, find_plan_notice
from api.console.requests import Console, ConsoleForm, ConsoleRequest, EmptyForm, build_router
from api.console.typed_forms import TypedForm, parse_body, read_text
from api.limits.bulkheads import RECORDS
from api.limits.keyed_bulkheads import SEARCHES_BY_CALLER, threaded_by_list
from api.paging import Cursor
from api.record_ids import ListId, PathId
from api.schemas.subscriptions import (
    MemberChanges,
    MemberUpsert,
    SubscriptionRecord,
    build_member_record,
)
from api.state import Transaction
from core.errors import DomainError, FieldProblem
from core.errors.mailing import (
    FIELD_VALUE,
    MEMBER_DENIED,
    SUBSCRIPTION_OPTED_OUT,
    TAG_TOO_MANY_OF_MEMBER,
)
from core.errors.people import EMAIL_INVALID
from core.settings.notations import PlanQuota
from models import FieldType, MailingList, MemberField, Subscription
from models import SubscriptionStatus as Status
from services.accounts import accounts, email_addresses
from services.paging import PageOfRows, PageRequest
from services.subscriptions import fields, lists, member_attributes, segments
from services.subscriptions.consent import evidence, networks
from services.subscriptions.fields import FieldValue, InvalidAttribute
from services.subscriptions.filters import member_filter, searching
from services.subscriptions.members import bounces, member_pages, members
from services.subscriptions.members.changes import Actor
from services.subscriptions.members.email_offs import EmailOffReason, find_email_off
from services.subscriptions.members.member_pages import MemberFilters
from storage.unit_of_work import UnitOfWork

router = build_router(f"{CONSOLE_PATH}/lists/{{list_id}}/members")

STATUSES = {
    "active": "Active",
    "pending": "Not confirmed yet",
    "unsubscribed": "Unsubscribed",
    "removed": "Removed",
}

MEMBERS_ON_PAGE = 40
SEGMENTS_TO_CHOOSE = 100
ENTRIES_ON_PAGE = 20
LISTS_TO_CHOOSE = 100
# Maps an error code to the form field that shows the error.
MEMBER_PLACES = {TAG_TOO_MANY_OF_MEMBER.code: "tags"}
_FIELD_PREFIX = "fields."
# The query string of the members page that shows only members whose mail bounces.
_BOUNCED_QUERY = urlencode({"filter": '{"field":"bounced","in":["soft","hard"]}'})
# The query of the link that finds members who came by a campaign.
_CAMPAIGN_QUERY = urlencode({"filter": '{"field":"utm_campaign","exists":true}'})
# Maps a type of member field to the ``type`` of its HTML input.
_INPUT_TYPES = {FieldType.NUMBER.value: "number", FieldType.DATE.value: "date"}
_ADDRESS_PLACES = {
    EMAIL_INVALID.code: "email",
    SUBSCRIPTION_OPTED_OUT.code: "email",
    MEMBER_DENIED.code: "email",
}


@router.get("")
async def show_members(
    console: Console, list_id: ListId, selection: Selection, cursor: Cursor = None
) -> Response:
    work = partial(_render_members, console, list_id, selection, cursor)
    if selection.is_plain:
        return await RECORDS.run(work)
    return await SEARCHES_BY_CALLER.run(console.user_id, work)


def _render_members(
    console: ConsoleRequest, list_id: int, selection: MemberSelection, cursor: str | None
) -> Response:
    form = TypedForm(selection.typed)
    draft = selection.draft
    page: PageOfRows[dict[str, Any]] = PageOfRows([], None)
    total = None
    filter_json = None
    page_request = PageRequest(MEMBERS_ON_PAGE, cursor=cursor)
    with console.unit_of_work() as uow:
        mailing_list = console.get_own_list(uow, list_id)
        own_segments = segments.list_segments(
            uow, mailing_list, PageRequest(SEGMENTS_TO_CHOOSE)
        ).rows
        segment_id = selection.segment_id
        if segment_id is not None and segment_id not in {each.id for each in own_segments}:
            own_segments.append(segments.get_segment(uow, mailing_list.id, segment_id))
        choices = filter_choices.list_choices(uow, mailing_list)
        own_fields = fields.read_own_fields(uow, console.user_id).by_key
        draft = filter_form.open_first_row(filter_form.convert_to_rows(draft, choices), choices)
    segment_choices = [(str(each.id), each.name) for each in own_segments]
    try:
        with console.unit_of_work() as uow:
            if (draft_json := draft.to_json()) is not None:
                # Validate the edited filter before combining it with other criteria, so that an
                # error contains the path of the invalid row.
                member_filter.read_filter(uow, mailing_list, draft_json)
            filter_json = selection.build_filter(uow, mailing_list)
        page, total = _search_members(console, mailing_list, selection, filter_json, page_request)
        count_members_page(console.state, console.caller)
    except DomainError as error:
        form = form.add_error(error, SELECTION_PLACES)
        if draft.add_error(error):
            form = replace(form, errors={})
    return console.render_form(
        "members.html",
        form,
        draft=draft,
        choices=choices,
        chips=_build_chips(selection, draft, choices, dict(segment_choices)),
        list=mailing_list,
        segments=segment_choices,
        fields=[(key, each.label) for key, each in own_fields.items()],
        columns=[(key, own_fields[key].label) for key in selection.columns if key in own_fields],
        most_columns=MAX_COLUMNS,
        members=page.rows,
        next_cursor=page.next_cursor,
        total=total,
        selection=selection,
        is_filtered=selection.has_filters or not draft.is_untouched,
        filter_text=None if filter_json is None else format_json(filter_json),
        limit=MEMBERS_ON_PAGE,
        search={"filter": filter_json, "limit": MEMBERS_ON_PAGE} if filter_json else None,
        statuses=STATUSES,
        tiers=TIERS,
        bounced_query=_BOUNCED_QUERY,
        campaign_query=_CAMPAIGN_QUERY,
    )


def _build_chips(
    selection: MemberSelection,
    draft: FilterDraft,
    choices: Mapping[str, Choice],
    segment_names: Mapping[str, str],
) -> list[tuple[str, str]]:
    """Return a label for each search criterion, and a URL query without that criterion."""
    typed = selection.typed
    labels = {
        "q": f"Address or name contains {typed.get('q')}",
        "segment": f"Segment {segment_names.get(typed.get('segment', ''))}",
    }
    chips = [(labels[name], _build_query_without(typed, name)) for name in labels if name in typed]
    if draft.group is not None:
        for label, other_conditions in filter_form.describe_conditions(draft.group, choices):
            if other_conditions is None:
                query = _build_query_without(typed, "filter")
            else:
                filter_text = orjson.dumps(other_conditions).decode()
                query = f"?{urlencode({**typed, 'filter': filter_text})}"
            chips.append((label, query))
    return chips


def _build_query_without(typed: Mapping[str, str], name: str) -> str:
    return f"?{urlencode({each: text for each, text in typed.items() if each != name})}"


def _search_members(
    console: ConsoleRequest,
    mailing_list: MailingList,
    selection: MemberSelection,
    filter_json: dict[str, Any] | None,
    page_request: PageRequest,
) -> tuple[PageOfRows[dict[str, Any]], int | None]:
    """Return a page of members, and the number of all matching members if it is known.

    Raises ``filter.invalid`` if the member filter is invalid. Raises ``filter.too_slow`` if the
    search exceeds its time limit. Raises ``cursor.invalid`` if the cursor in the URL is invalid.
    """
    status = selection.status or Status.ACTIVE
    if selection.is_plain and status in [*Status]:
        filters = MemberFilters(Status(status))
        member_page = member_pages.read_member_page(
            console.state.resources,
            console.caller,
            mailing_list.id,
            filters,
            page_request,
        )
        return member_page.page, member_page.total
    with console.unit_of_work() as uow:
        parsed_filter = member_filter.read_filter(uow, mailing_list, filter_json)
        result = searching.search_members(uow, mailing_list.id, parsed_filter, page_request)
    return result.page, result.total


@router.get("/new")
def show_new_member(console: Console, list_id: ListId, form: EmptyForm) -> Response:
    with console.unit_of_work() as uow:
        mailing_list = console.get_own_list(uow, list_id)
        notice = find_plan_notice(
            uow, console.user_id, PlanQuota.MEMBERS, paid_plan_text=ADDING_MEMBERS_TEXT
        )
    return console.render_form(
        "new_member.html", form, list=mailing_list, tiers=[*TIERS.items()], refusal=notice
    )


@router.post("/new")
@threaded_by_list
def add_member(console: ConsoleForm, list_id: ListId) -> Response:
    """Add a member to a list, or change the member who already has the submitted e-mail address."""
    form = console.form
    try:
        email = email_addresses.normalise_address(form.get("email", ""))
        named = {"name": read_text(form, "name"), "type": form.get("type", "")}
        body = parse_body(MemberUpsert, {key: value for key, value in named.items() if value})
        with console.unit_of_work() as uow:
            mailing_list = console.get_own_list(uow, list_id)
            member = members.upsert_member(
                uow, mailing_list, email, body.edit(), _build_actor(console)
            )
            user_id = member.user_id
    except DomainError as error:
        return show_new_member(console, list_id, console.add_error(error, _ADDRESS_PLACES))
    return console.redirect_with_notice(
        _get_member_path(list_id, user_id), f"{email} is on the list."
    )


def _build_actor(console: ConsoleRequest) -> Actor:
    return actors.build_owner_actor(console.request, console.caller)


def _get_member_path(list_id: int, user_id: int) -> str:
    return f"{get_list_path(list_id)}/members/{user_id}"


@dataclass(frozen=True)
class _Member:
    """A member of a list.

    Attributes:
        subscription: the member's row in the database.
        record: the member in the format of the API.
    """

    mailing_list: MailingList
    subscription: Subscription
    record: SubscriptionRecord


@router.get("/{user_id}")
def show_member(
    console: Console, list_id: ListId, user_id: PathId, form: EmptyForm, cursor: Cursor = None
) -> Response:
    with console.unit_of_work() as uow:
        member = _get_member(uow, console, list_id, user_id)
        own_fields = fields.list_fields(uow, console.user_id)
        page_request = PageRequest(ENTRIES_ON_PAGE, cursor=cursor)
        history = members.list_history(uow, member.mailing_list, user_id, page_request)
        consent = evidence.list_evidence(uow, member.subscription, PageRequest(ENTRIES_ON_PAGE))
        counts_by_network = networks.count_people_by_network(uow, member.subscription, consent.rows)
        own_lists = lists.list_choices(uow, console.user_id, LISTS_TO_CHOOSE)
        has_lifted_bounce = bounces.has_owner_lifted(uow, list_id, user_id)
    record = member.record
    inputs = {
        "name": record.name or "",
        "type": record.type,
        "paid_expiry": _format_date(record.paid_expiry),
        "tags": ", ".join(record.tags or ()),
    }
    values = (record.fields or {}).items()
    form = form.fill(
        inputs | {f"{_FIELD_PREFIX}{key}": fields.format_value(each) for key, each in values}
    )
    return console.render_form(
        "member.html",
        form,
        list=member.mailing_list,
        member=record,
        status_words=STATUSES.get(record.status, record.status),
        source_words=SOURCES.get(record.source, record.source),
        fields=[_build_field_input(each, form) for each in own_fields],
        tiers=[*TIERS.items()],
        targets=[(each.id, each.title) for each in own_lists if each.id != list_id],
        mail_words=describe_mail(record.email_off),
        may_turn_mail_on=_may_turn_mail_on(record, has_lifted_bounce=has_lifted_bounce),
        history=[describe_event(event) for event in history.rows],
        history_cursor=history.next_cursor,
        consent=[
            (describe_consent(each), describe_network(each, counts_by_network), each)
            for each in consent.rows
        ],
    )


def _may_turn_mail_on(record: SubscriptionRecord, *, has_lifted_bounce: bool) -> bool:
    """Return whether the list's owner may turn a member's mail on.

    The owner can't reverse an opt-out, and can lift a bounce only once in 30 days.

    ``has_lifted_bounce``: whether the owner has lifted a bounce of the member in the last 30 days.
    """
    if record.email_off is None or record.email_off.reason is EmailOffReason.PERSON:
        return False
    return record.email_off.reason is EmailOffReason.OWNER or not has_lifted_bounce


def _get_member(uow: UnitOfWork, console: ConsoleRequest, list_id: int, user_id: int) -> _Member:
    mailing_list = console.get_own_list(uow, list_id)
    subscription = members.get_member(uow, mailing_list, user_id)
    person = accounts.get_user(uow, user_id)
    tag_ids = [subscription.tag_ids]
    attributes = member_attributes.create_formatter(uow, mailing_list.user_id, tag_ids)
    email_off = find_email_off(uow, subscription)
    record = build_member_record(subscription, person, attributes, email_off)
    return _Member(mailing_list, subscription, record)


@router.post("/{user_id}")
@threaded_by_list
def change_member(console: ConsoleForm, list_id: ListId, user_id: PathId) -> Response:
    try:
        with console.unit_of_work() as uow:
            member = _get_member(uow, console, list_id, user_id)
            own_fields = fields.list_fields(uow, console.user_id)
            changes = read_changes(console.form, member.record, own_fields)
            members.update_member(
                uow, member.mailing_list, user_id, changes.edit(), _build_actor(console)
            )
    except DomainError as error:
        return show_member(console, list_id, user_id, console.add_error(error, MEMBER_PLACES))
    notice = "The changes were saved." if changes.sent() else "There were no changes to save."
    return console.redirect_with_notice(_get_member_path(list_id, user_id), notice)


def read_changes(
    form: FormFields, record: SubscriptionRecord, own_fields: Iterable[MemberField]
) -> MemberChanges:
    """Return the submitted attributes that differ from the stored ones.

    Raises ``field.value`` if the value of a member field is invalid. Raises ``body.invalid`` if a
    standard attribute, such as the name, is invalid.
    """
    values: dict[str, Any] = {
        "name": read_text(form, "name"),
        "type": form.get("type", ""),
        "tags": [each for part in form.get("tags", "").split(",") if (each := part.strip())],
    }
    changed = {name: value for name, value in values.items() if value != getattr(record, name)}
    # If the user changed the expiry day of the tier, the tier expires at midnight in UTC. If the
    # expiry day hasn't changed, the stored time of day is kept.
    day = form.get("paid_expiry", "").strip()
    if day != _format_date(record.paid_expiry):
        changed["paid_expiry"] = f"{day}T00:00:00Z" if day else None
    old_values = record.fields or {}
    new_values = _read_fields(form, own_fields)
    changed_fields = {
        key: value for key, value in new_values.items() if value != old_values.get(key)
    }
    return parse_body(
        MemberChanges, changed | ({"fields": changed_fields} if changed_fields else {})
    )


def _read_fields(
    form: FormFields, own_fields: Iterable[MemberField]
) -> dict[str, FieldValue | None]:
    values: dict[str, FieldValue | None] = {}
    problems = []
    for field in own_fields:
        name = f"{_FIELD_PREFIX}{field.key}"
        if name not in form:
            continue
        try:
            values[field.key] = fields.parse_value(field, form[name])
        except InvalidAttribute as error:
            problems.append(FieldProblem(f"body.{name}", "field.value", str(error)))
    if problems:
        rules = "; ".join(f"{each.field}: {each.message}" for each in problems)
        raise FIELD_VALUE(rules=rules, problems=tuple(problems))
    return values


def _format_date(moment: datetime | None) -> str:
    return "" if moment is None else moment.date().isoformat()


@router.post("/{user_id}/email")
@threaded_by_list
def switch_mail(console: ConsoleForm, list_id: ListId, user_id: PathId) -> Response:
    """Stop sending mail to a member, or resume sending unless the member has opted out."""
    enabled = console.form.get("enabled") == "yes"

    def switch(uow: UnitOfWork, mailing_list: MailingList) -> tuple[int, str]:
        actor = _build_actor(console)
        members.set_email(uow, mailing_list, user_id, actor, enabled=enabled)
        return list_id, f"Mail was turned {'on' if enabled else 'off'}."

    return _run_member_action(console, list_id, user_id, switch)


@router.post("/{user_id}/move")
@threaded_by_list
def move_member(console: ConsoleForm, list_id: ListId, user_id: PathId) -> Response:

    def move(uow: UnitOfWork, source: MailingList) -> tuple[int, str]:
        target_id = lists.parse_list_id(console.form.get("list", ""))
        target = console.get_own_list(uow, target_id or 0)
        members.transfer_member(uow, source, target, user_id, actor=_build_actor(console))
        return target.id, f"The member was moved to “{target.title}”."

    return _run_member_action(console, list_id, user_id, move)


def _run_member_action(
    console: ConsoleRequest,
    list_id: int,
    user_id: int,
    action: Callable[[UnitOfWork, MailingList], tuple[int, str]],
) -> Response:
    """Run an action on a member, and show its errors on the member's page.

    ``action``: a function that runs the action, and returns the id of the member's new list and a
    notice.
    """
    try:
        with console.unit_of_work() as uow:
            target_list_id, notice = action(uow, console.get_own_list(uow, list_id))
    except DomainError as error:
        error_form = console.add_error(error)
        form = TypedForm(problem=error_form.problem, status=error_form.status)
        return show_member(console, list_id, user_id, form)
    return console.redirect_with_notice(_get_member_path(target_list_id, user_id), notice)


@router.get("/{user_id}/remove")
def show_removal(console: Console, uow: Transaction, list_id: ListId, user_id: PathId) -> Response:
    member = _get_member(uow, console, list_id, user_id)
    return console.render_page("remove_member.html", list=member.mailing_list, member=member.record)


@router.post("/{user_id}/remove")
@threaded_by_list
def remove_member(
    console: ConsoleForm, uow: Transaction, list_id: ListId, user_id: PathId
) -> Response:
    members.remove_member(uow, console.get_own_list(uow, list_id), user_id, _build_actor(console))
    return console.redirect_with_notice(
        _get_member_path(list_id, user_id), "The member was removed from the list."
    )


def _build_field_input(field: MemberField, form: TypedForm) -> dict[str, Any]:
    """Return the template values for the input of a member field.

    A member may keep a choice that the owner has removed from the member field.
    """
    name = f"{_FIELD_PREFIX}{field.key}"
    value = form.typed.get(name, "")
    choices = []
    if field.type == FieldType.BOOLEAN:
        choices = [("", ""), ("true", "Yes"), ("false", "No")]
    elif field.type == FieldType.CHOICE:
        names = field.choices if value in {"", *field.choices} else [*field.choices, value]
        choices = [("", ""), *((each, each) for each in names)]
    return {
        "name": name,
        "label": field.label,
        "hint": field.description or "",
        "type": _INPUT_TYPES.get(field.type, "text"),
        "choices": choices,
    }
