"""The tags of a list. A tag is made when a member gets it."""

from fastapi import APIRouter

from api.access.requirements import ListEditor, ListReader
from api.bodies.json_route import JsonRoute
from api.limits.bulkheads import RECORDS
from api.openapi import refuses
from api.parameters import ListId, Paging, PathId, StateOf
from api.schemas.attributes import TagChange, TagRecord
from api.schemas.envelope import Envelope, Page, envelope, page
from core.refusals import attributes as refusals
from core.refusals.mailing import LIST_NOT_FOUND, LIST_NOT_OWNER
from core.refusals.requests import CURSOR_INVALID
from services.mailing import lists
from services.mailing.attributes import tags

router = APIRouter(tags=["Fields and tags"], route_class=JsonRoute)

_FINDING = (LIST_NOT_FOUND, LIST_NOT_OWNER)
_ONE = "/lists/{list_id}/tags/{tag_id}"


@router.get("/lists/{list_id}/tags", responses=refuses(*_FINDING, CURSOR_INVALID))
@RECORDS.threaded
def list_tags(
    state: StateOf, caller: ListReader, list_id: ListId, paging: Paging
) -> Envelope[Page[TagRecord]]:
    """The tags of a list, newest first. A list has at most 10,000."""
    with state.resources.unit_of_work() as uow:
        mailing_list = lists.owned(uow, caller, list_id)
        found = tags.page(uow, mailing_list.id, paging)
        items = [TagRecord.model_validate(each) for each in found.rows]
    return envelope(page(items, paging, found))


@router.patch(_ONE, responses=refuses(*_FINDING, refusals.TAG_NOT_FOUND, refusals.TAG_NAME_TAKEN))
@RECORDS.threaded
def rename_tag(
    state: StateOf, caller: ListEditor, list_id: ListId, tag_id: PathId, body: TagChange
) -> Envelope[TagRecord]:
    """Give a tag another name, for all members who have it."""
    with state.resources.unit_of_work() as uow:
        mailing_list = lists.owned(uow, caller, list_id)
        return envelope(
            TagRecord.model_validate(tags.rename(uow, mailing_list.id, tag_id, body.name))
        )


@router.delete(_ONE, responses=refuses(*_FINDING, refusals.TAG_NOT_FOUND))
@RECORDS.threaded
def delete_tag(
    state: StateOf, caller: ListEditor, list_id: ListId, tag_id: PathId
) -> Envelope[int]:
    """Take a tag off all members, and off the list."""
    with state.resources.unit_of_work() as uow:
        mailing_list = lists.owned(uow, caller, list_id)
        return envelope(tags.forget(uow, mailing_list.id, tag_id))
