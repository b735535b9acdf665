"""The API endpoints for the member fields of an owner and for the tags of a list."""

from functools import partial

from fastapi import APIRouter

from api.auth.requirements import ListEditor, ListReader
from api.openapi.declarations import LIST_ERRORS, error_responses
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


@router.post(
    "/fields",
    summary="Create a field",
    responses=error_responses(mailing.FIELD_TOO_MANY, *_FIELD_ERRORS),
)
def create_field(uow: Transaction, caller: ListEditor, body: NewField) -> Envelope[FieldRecord]:
    """Create a custom field for the members of all your lists.

    You can have at most 50 fields.
    """
    field = fields.create_field(uow, caller.account_id, **body.columns())
    return build_envelope(_build_record(field))


@router.get("/fields", summary="List all fields")
def list_fields(uow: Transaction, caller: ListReader) -> Envelope[list[FieldRecord]]:
    """List your custom fields, oldest first."""
    return build_envelope(
        [_build_record(field) for field in fields.list_fields(uow, caller.account_id)]
    )


@router.patch(
    "/fields/{field_id}",
    summary="Update a field",
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
    """Update a custom field. Members keep their values if the key or the label changes.

    If you remove a choice, members keep the choice as their value. If you change the type, the
    values of all members are converted as in an import. The type changes only if every value can be
    converted. If the field is in use, the error lists segments, unfinished bulk actions, exports
    and imports in `used_by`.
    """
    field = field_types.change_field_and_type(uow, caller.account_id, field_id, body.columns())
    return build_envelope(_build_record(field))


@router.delete(
    "/fields/{field_id}",
    summary="Retire a field",
    responses=error_responses(mailing.FIELD_NOT_FOUND),
)
def retire_field(uow: Transaction, caller: ListEditor, field_id: PathId) -> Envelope[int]:
    """Retire a custom field. A new field can use the same key, but doesn't receive the old values.

    Members keep their values, which are hidden, until the members are erased.
    """
    return build_envelope(fields.retire_field(uow, caller.account_id, field_id))


def _build_record(field: MemberField) -> FieldRecord:
    return FieldRecord.of_row(field, public=field.is_public)


@router.get(
    "/lists/{list_id}/tags",
    summary="List all tags",
    responses=error_responses(*LIST_ERRORS, requests.CURSOR_INVALID),
)
def list_tags(
    uow: Transaction, caller: ListReader, list_id: ListId, paging: Paging
) -> Envelope[Page[TagRecord]]:
    """List the tags of a list, newest first. A list can have at most 10,000 tags."""
    mailing_list = lists.get_own_list(uow, caller, list_id)
    read = partial(tags.list_tags, uow, mailing_list.id)
    return build_envelope(
        build_page(paging, read, lambda rows: [*map(TagRecord.model_validate, rows)])
    )


@router.patch(
    _TAG_PATH,
    summary="Rename a tag",
    responses=error_responses(*LIST_ERRORS, mailing.TAG_NOT_FOUND, mailing.TAG_NAME_TAKEN),
)
def rename_tag(
    uow: Transaction, caller: ListEditor, list_id: ListId, tag_id: PathId, body: TagChange
) -> Envelope[TagRecord]:
    """Rename a tag for all members with the tag."""
    mailing_list = lists.get_own_list(uow, caller, list_id)
    return build_envelope(
        TagRecord.model_validate(tags.rename_tag(uow, mailing_list.id, tag_id, body.name))
    )


@router.delete(
    _TAG_PATH,
    summary="Delete a tag",
    responses=error_responses(
        *LIST_ERRORS, mailing.TAG_NOT_FOUND, mailing.TAG_IN_USE, mailing.LIST_BUSY
    ),
)
def delete_tag(
    uow: Transaction, caller: ListEditor, list_id: ListId, tag_id: PathId
) -> Envelope[int]:
    """Delete a tag from a list and from all members.

    A tag that is in use can't be deleted. The error lists segments, unfinished bulk actions and
    unfinished exports in `used_by`, each with `kind`, `id` and `name`.
    """
    mailing_list = lists.get_own_list(uow, caller, list_id)
    return build_envelope(tags.delete_tag(uow, mailing_list.id, tag_id))
