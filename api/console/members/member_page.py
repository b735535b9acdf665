"""Pages on which an owner sees, changes, moves and removes one member of a list."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fastapi.responses import Response

from api.auth import actors
from api.bodies.page_forms import FormFields
from api.console.assets import CONSOLE_PATH
from api.console.console_display import SOURCES, TIERS
from api.console.members.views import (
    TimelineEntry,
    describe_consent,
    describe_engagement,
    describe_event,
    describe_origin,
    describe_state,
    merge_timeline,
)
from api.console.navigation import get_list_path
from api.console.requests import (
    ConsoleRequest,
    EditForm,
    EditPage,
    EmptyForm,
    MembersPage,
    build_router,
    shows_errors_on,
)
from api.console.typed_forms import TypedForm, parse_body, read_text
from api.limits.keyed_bulkheads import threaded_by_list
from api.paging import Cursor
from api.record_ids import ListId, PathPersonId
from api.schemas.subscriptions import MemberChanges, SubscriptionRecord, build_member_record
from api.state import Transaction
from core.errors import FieldProblem
from core.errors.mailing import FIELD_VALUE, TAG_TOO_MANY_OF_MEMBER
from core.errors.requests import CURSOR_INVALID
from core.ids import PersonId
from models import FieldType, MailingList, MemberField, Subscription, SubscriptionEvent
from services.accounts import accounts
from services.paging import PageOfRows, PageRequest
from services.subscriptions import fields, lists, mailings, member_attributes
from services.subscriptions.consent import evidence, networks
from services.subscriptions.consent.evidence import ConsentEvidence
from services.subscriptions.fields import FieldValue, InvalidAttribute
from services.subscriptions.members import bounces, engagement_choices, members, transfers
from services.subscriptions.members.changes import Actor
from services.subscriptions.members.email_offs import EmailOffReason, find_email_off
from services.subscriptions.members.engagement_views import read_view
from storage.unit_of_work import UnitOfWork

router = build_router(f"{CONSOLE_PATH}/lists/{{list_id}}/members")

STATUSES = {
    "active": "Active",
    "pending": "Not confirmed yet",
    "unsubscribed": "Unsubscribed",
    "removed": "Removed",
}

ENTRIES_ON_PAGE = 20
LISTS_TO_CHOOSE = 100
# Maps an error code to the form field that shows the error.
_MEMBER_PLACES = {TAG_TOO_MANY_OF_MEMBER.code: "tags"}
_FIELD_PREFIX = "fields."
# Maps a type of member field to the ``type`` of its HTML input.
_INPUT_TYPES = {FieldType.NUMBER.value: "number", FieldType.DATE.value: "date"}


@dataclass(frozen=True)
class _Member:
    mailing_list: MailingList
    subscription: Subscription
    record: SubscriptionRecord


def build_actor(console: ConsoleRequest) -> Actor:
    return actors.build_owner_actor(console.request, console.caller)


def get_member_path(list_id: int, user_id: int) -> str:
    return f"{get_list_path(list_id)}/members/{user_id}"


@router.get("/{user_id}")
def show_member(
    console: MembersPage,
    uow: Transaction,
    list_id: ListId,
    user_id: PathPersonId,
    form: EmptyForm,
    cursor: Cursor = None,
) -> Response:
    member = _get_member(uow, console, list_id, user_id)
    own_fields = fields.list_fields(uow, console.account_id)
    timeline = _read_timeline(uow, member, {each.key: each.label for each in own_fields}, cursor)
    own_lists = lists.list_choices(uow, console.account_id, LISTS_TO_CHOOSE)
    has_lifted_bounce = bounces.has_owner_lifted(uow, list_id, user_id)
    console.count_members_page(uow)
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
    return console.render_page(
        "member.html",
        form,
        list=member.mailing_list,
        member=record,
        state=describe_state(record),
        source_words=SOURCES.get(record.source, record.source),
        origin=describe_origin(record.origin),
        engagement=describe_engagement(record),
        fields=[_build_field_input(each, form) for each in own_fields],
        tiers=[*TIERS.items()],
        targets=[(str(each.id), each.title) for each in own_lists if each.id != list_id],
        may_turn_mail_on=_may_turn_mail_on(record, has_lifted_bounce=has_lifted_bounce),
        timeline=timeline.rows,
        timeline_cursor=timeline.next_cursor,
        mailing_names=mailings.list_names(
            uow, list_id, {entry.mailing_id for entry in timeline.rows if entry.mailing_id}
        ),
    )


def _read_timeline(
    uow: UnitOfWork, member: _Member, field_labels: Mapping[str, str], cursor: str | None
) -> PageOfRows[TimelineEntry]:
    """Return a page of the member's changes and consents, newest first.

    The cursor contains the cursors of the next change and of the next consent. An empty cursor
    stands for the end, and a hyphen for the start.
    """
    change_start, separator, consent_start = ("-_-" if cursor is None else cursor).partition("_")
    if not separator:
        raise CURSOR_INVALID()
    history: PageOfRows[SubscriptionEvent] = PageOfRows([], None)
    consents: PageOfRows[ConsentEvidence] = PageOfRows([], None)
    if change_start:
        history = members.list_history(
            uow,
            member.mailing_list,
            member.subscription.user_id,
            _build_page_request(change_start),
        )
    if consent_start:
        consents = evidence.list_evidence(
            uow, member.subscription, _build_page_request(consent_start)
        )
    counts_by_network = networks.count_people_by_network(uow, member.subscription, consents.rows)
    timeline, change_count, consent_count = merge_timeline(
        [describe_event(event, field_labels) for event in history.rows],
        [describe_consent(each, counts_by_network) for each in consents.rows],
        ENTRIES_ON_PAGE,
    )
    next_start = _find_next_start(history, change_count, change_start)
    next_start += f"_{_find_next_start(consents, consent_count, consent_start)}"
    return PageOfRows(timeline, None if next_start == "_" else next_start)


def _build_page_request(start: str) -> PageRequest:
    return PageRequest(ENTRIES_ON_PAGE, cursor=None if start == "-" else start)


def _find_next_start(page: PageOfRows[Any], count: int, start: str) -> str:
    """Return the cursor after the first ``count`` rows of a page that begins at ``start``."""
    if count == len(page.rows) and page.next_cursor is None:
        return ""
    return page.cursor_after(count) if count else start


def _may_turn_mail_on(record: SubscriptionRecord, *, has_lifted_bounce: bool) -> bool:
    """The owner can't turn the mail on if the member has opted out. If a bounce turned the mail
    off, the owner can turn the mail on only once in 30 days.
    """
    if record.email_off is None or record.email_off.reason is EmailOffReason.PERSON:
        return False
    return record.email_off.reason is EmailOffReason.OWNER or not has_lifted_bounce


def _get_member(
    uow: UnitOfWork, console: ConsoleRequest, list_id: int, user_id: PersonId
) -> _Member:
    mailing_list = console.get_own_list(uow, list_id)
    subscription = members.get_member(uow, mailing_list, user_id)
    person = accounts.get_user(uow, user_id)
    tag_ids = [subscription.tag_ids]
    attributes = member_attributes.create_formatter(uow, mailing_list.user_id, tag_ids)
    email_off = find_email_off(uow, subscription)
    view = read_view(uow, subscription)
    record = build_member_record(subscription, person, attributes, email_off, view)
    return _Member(mailing_list, subscription, record)


@router.post("/{user_id}")
@threaded_by_list
@shows_errors_on(show_member, _MEMBER_PLACES)
def change_member(
    console: EditForm, uow: Transaction, list_id: ListId, user_id: PathPersonId
) -> Response:
    member = _get_member(uow, console, list_id, user_id)
    own_fields = fields.list_fields(uow, console.account_id)
    changes = _read_changes(console.form, member.record, own_fields)
    members.update_member(uow, member.mailing_list, user_id, changes.edit(), build_actor(console))
    notice = "The changes were saved." if changes.sent() else "There were no changes to save."
    return console.redirect(get_member_path(list_id, user_id), notice)


def _read_changes(
    form: FormFields, record: SubscriptionRecord, own_fields: Iterable[MemberField]
) -> MemberChanges:
    """Return the member's attributes that the submitted form changes."""
    values: dict[str, Any] = {
        "name": read_text(form, "name"),
        "type": form.get("type", ""),
        "tags": [each for part in form.get("tags", "").split(",") if (each := part.strip())],
    }
    changed = {name: value for name, value in values.items() if value != getattr(record, name)}
    # If the user changed the day on which the tier expires, the tier expires at 0:00 UTC on the new
    # day. If the user didn't change the day, keep the stored time of day.
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
@shows_errors_on(show_member, keeps_input=False)
def switch_mail(
    console: EditForm, uow: Transaction, list_id: ListId, user_id: PathPersonId
) -> Response:
    """Stop sending mail to a member, or resume sending unless the member has opted out."""
    enabled = console.form.get("enabled") == "yes"
    mailing_list = console.get_own_list(uow, list_id)
    members.set_email(uow, mailing_list, user_id, build_actor(console), enabled=enabled)
    notice = f"Mail was turned {'on' if enabled else 'off'}."
    return console.redirect(get_member_path(list_id, user_id), notice)


@router.post("/{user_id}/engagement")
@shows_errors_on(show_member, keeps_input=False)
def refuse_engagement(
    console: EditForm, uow: Transaction, list_id: ListId, user_id: PathPersonId
) -> Response:
    """Store the no of a member who asked the owner."""
    mailing_list = console.get_own_list(uow, list_id)
    member = members.get_member(uow, mailing_list, user_id)
    person = accounts.get_user(uow, member.user_id)
    engagement_choices.refuse_engagement(uow, mailing_list, person, build_actor(console))
    return console.redirect(get_member_path(list_id, user_id), "Their no was recorded.")


@router.post("/{user_id}/move")
@threaded_by_list
@shows_errors_on(show_member, keeps_input=False)
def move_member(
    console: EditForm, uow: Transaction, list_id: ListId, user_id: PathPersonId
) -> Response:
    if not console.form.get("list"):
        form = TypedForm(problem="Choose the list to move this member to.", status=422)
        return show_member(console, uow, list_id, user_id, form)
    source = console.get_own_list(uow, list_id)
    target = console.get_own_list(uow, lists.parse_list_id(console.form["list"]) or 0)
    transfers.transfer_member(uow, source, target, user_id, actor=build_actor(console))
    return console.redirect(
        get_member_path(target.id, user_id), f"The member was moved to “{target.title}”."
    )


@router.get("/{user_id}/remove")
def show_removal(
    console: EditPage, uow: Transaction, list_id: ListId, user_id: PathPersonId
) -> Response:
    member = _get_member(uow, console, list_id, user_id)
    console.count_members_page(uow)
    return console.render_page("remove_member.html", list=member.mailing_list, member=member.record)


@router.post("/{user_id}/remove")
@threaded_by_list
def remove_member(
    console: EditForm, uow: Transaction, list_id: ListId, user_id: PathPersonId
) -> Response:
    members.remove_member(uow, console.get_own_list(uow, list_id), user_id, build_actor(console))
    return console.redirect(
        get_member_path(list_id, user_id), "The member was removed from the list."
    )


def _build_field_input(field: MemberField, form: TypedForm) -> dict[str, Any]:
    """Return the template values for the input of a member field.

    If the owner has removed the member's current choice from the member field, the input still
    offers this choice, so that saving the form keeps it.
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
