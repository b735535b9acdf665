"""The fields of an owner: what members of all their lists may have beside name and address."""

from typing import Any

from fastapi import APIRouter

from api.access.requirements import ListEditor, ListReader
from api.bodies.json_route import JsonRoute
from api.limits.bulkheads import RECORDS
from api.openapi import refuses
from api.parameters import PathId, StateOf
from api.schemas.attributes import FieldChanges, FieldRecord, NewField
from api.schemas.envelope import Envelope, envelope
from core.refusals import attributes as refusals
from models import MemberField
from services.mailing.attributes import fields

router = APIRouter(tags=["Fields and tags"], route_class=JsonRoute)

_RULES = (
    refusals.FIELD_KEY,
    refusals.FIELD_KEY_TAKEN,
    refusals.FIELD_LABEL,
    refusals.FIELD_CHOICES,
)


@router.post("/fields", responses=refuses(refusals.FIELD_TOO_MANY, *_RULES))
@RECORDS.threaded
def create_field(state: StateOf, caller: ListEditor, body: NewField) -> Envelope[FieldRecord]:
    """Make a field that the members of all the caller's lists may have a value of.

    An owner has at most 50 fields. The type stays: members have values of it.
    """
    with state.resources.unit_of_work() as uow:
        made = fields.create(uow, caller.user_id, **_columns(body.sent()))
        return envelope(_record(made))


@router.get("/fields")
@RECORDS.threaded
def list_fields(state: StateOf, caller: ListReader) -> Envelope[list[FieldRecord]]:
    """The caller's fields, the oldest first."""
    with state.resources.unit_of_work() as uow:
        return envelope([_record(each) for each in fields.list_of(uow, caller.user_id)])


@router.patch("/fields/{field_id}", responses=refuses(refusals.FIELD_NOT_FOUND, *_RULES))
@RECORDS.threaded
def change_field(
    state: StateOf, caller: ListEditor, field_id: PathId, body: FieldChanges
) -> Envelope[FieldRecord]:
    """Change what the body names. A new key or label changes no member.

    A choice that is taken away stays the value of the members who have it.
    """
    with state.resources.unit_of_work() as uow:
        return envelope(
            _record(fields.change(uow, caller.user_id, field_id, _columns(body.sent())))
        )


@router.delete("/fields/{field_id}", responses=refuses(refusals.FIELD_NOT_FOUND))
@RECORDS.threaded
def retire_field(state: StateOf, caller: ListEditor, field_id: PathId) -> Envelope[int]:
    """Show a field no more. Another field may have its key; its own values are never that one's.

    Members keep the values, unseen, until they are erased.
    """
    with state.resources.unit_of_work() as uow:
        return envelope(fields.retire(uow, caller.user_id, field_id))


def _columns(sent: dict[str, Any]) -> dict[str, Any]:
    return {"is_public" if name == "public" else name: value for name, value in sent.items()}


def _record(field: MemberField) -> FieldRecord:
    return FieldRecord.of_row(field, public=field.is_public)
