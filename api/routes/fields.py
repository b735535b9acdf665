"""The API endpoints for the member fields of an owner and for the tags of a list."""

from functools import partial

from fastapi import APIRouter

from api.auth.requirements import ListEditor, ListReader
from api.openapi import LIST_ERRORS, error_responses
from api.paging import Paging
from api.record_ids import ListId, PathId
from api.route_classes import JsonRoute
from api.schemas.envelope import Envelope, Page, build_envelope, build_page
from api.schemas.fields import FieldChanges, FieldRecord, NewField, TagChange, TagRecord
from api.state import Transaction
from core.errors import mailing, requests
from models import MemberField
from services.subscriptions import field_types, fields, lists, tags

router = APIRouter(tags=["Fields and tags"], route_class=JsonRoute)

_TAG_PATH = "/lists/{list_id}/tags/{tag_id}"
_FIELD_ERRORS = (
    mailing.FIELD_KEY,
    mailing.FIELD_KEY_TAKEN,
    mailing.FIELD_LABEL,
    mailing.FIELD_CHOICES,
    mailing.TEXT_LEADS_AWAY,
    mailing.TEXT_MISLEADING,
)


@router.post("/fields", responses=error_responses(mailing.FIELD_TOO_MANY, *_FIELD_ERRORS))
def create_field(uow: Transaction, caller: ListEditor, body: NewField) -> Envelope[FieldRecord]:
    """Create a field that the members of all the caller's lists may have a value of.

    An owner has at most 50 fields.
    """
    field = fields.create_field(uow, caller.user_id, **body.columns())
    return build_envelope(_build_record(field))


@router.get("/fields")
def list_fields(uow: Transaction, caller: ListReader) -> Envelope[list[FieldRecord]]:
    """The caller's fields, the oldest first."""
    return build_envelope(
        [_build_record(field) for field in fields.list_fields(uow, caller.user_id)]
    )


@router.patch(
    "/fields/{field_id}",
    responses=error_responses(
        mailing.FIELD_NOT_FOUND,
        *_FIELD_ERRORS,
        mailing.FIELD_IN_USE,
        mailing.FIELD_VALUES_UNFIT,
        mailing.FIELD_TOO_MANY_VALUES,
        mailing.LIST_BUSY,
    ),
)
def change_field(
    uow: Transaction, caller: ListEditor, field_id: PathId, body: FieldChanges
) -> Envelope[FieldRecord]:
    """Change what the body names. A new key or label changes no member.

    A choice that is taken away stays the value of the members who have it. Another type converts
    the values of all members, as an import reads them: nothing is changed unless every value fits.
    The error names in `used_by` each segment, and each unfinished bulk action, export and import
    that may use the field.
    """
    field = field_types.change_field_and_type(uow, caller.user_id, field_id, body.columns())
    return build_envelope(_build_record(field))


@router.delete("/fields/{field_id}", responses=error_responses(mailing.FIELD_NOT_FOUND))
def retire_field(uow: Transaction, caller: ListEditor, field_id: PathId) -> Envelope[int]:
    """Show a field no more. Another field may have its key; its own values are never that one's.

    Members keep the values, unseen, until they are erased.
    """
    return build_envelope(fields.retire_field(uow, caller.user_id, field_id))


def _build_record(field: MemberField) -> FieldRecord:
    return FieldRecord.of_row(field, public=field.is_public)


@router.get(
    "/lists/{list_id}/tags", responses=error_responses(*LIST_ERRORS, requests.CURSOR_INVALID)
)
def list_tags(
    uow: Transaction, caller: ListReader, list_id: ListId, paging: Paging
) -> Envelope[Page[TagRecord]]:
    """The tags of a list, newest first. A list has at most 10,000."""
    mailing_list = lists.get_own_list(uow, caller, list_id)
    read = partial(tags.list_tags, uow, mailing_list.id)
    return build_envelope(
        build_page(paging, read, lambda rows: [*map(TagRecord.model_validate, rows)])
    )


@router.patch(
    _TAG_PATH,
    responses=error_responses(*LIST_ERRORS, mailing.TAG_NOT_FOUND, mailing.TAG_NAME_TAKEN),
)
def rename_tag(
    uow: Transaction, caller: ListEditor, list_id: ListId, tag_id: PathId, body: TagChange
) -> Envelope[TagRecord]:
    """Give a tag another name, for all members who have it."""
    mailing_list = lists.get_own_list(uow, caller, list_id)
    return build_envelope(
        TagRecord.model_validate(tags.rename_tag(uow, mailing_list.id, tag_id, body.name))
    )


@router.delete(
    _TAG_PATH,
    responses=error_responses(
        *LIST_ERRORS, mailing.TAG_NOT_FOUND, mailing.TAG_IN_USE, mailing.LIST_BUSY
    ),
)
def delete_tag(
    uow: Transaction, caller: ListEditor, list_id: ListId, tag_id: PathId
) -> Envelope[int]:
    """Take a tag off all members, and off the list, unless something uses it.

    The error names in `used_by` each segment, unfinished bulk action and unfinished export that
    uses it: its `kind`, `id` and `name`.
    """
    mailing_list = lists.get_own_list(uow, caller, list_id)
    return build_envelope(tags.delete_tag(uow, mailing_list.id, tag_id))
