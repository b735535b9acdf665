"""Addresses and domains of which an owner wants no new members."""

from fastapi import APIRouter

from api.access.requirements import ListEditor, ListReader
from api.bodies.json_route import JsonRoute
from api.limits.bulkheads import RECORDS
from api.openapi import refuses
from api.parameters import StateOf
from api.schemas.deny_list import DenyListChanges, DenyListRecord, NewDenyList
from api.schemas.envelope import Envelope, envelope
from core.refusals.mailing import DENY_LIST_ENTRY, DENY_LIST_TOO_LONG
from services.mailing import deny_lists

router = APIRouter(tags=["Lists"], route_class=JsonRoute)


@router.get("/deny-list")
@RECORDS.threaded
def read_deny_list(state: StateOf, caller: ListReader) -> Envelope[DenyListRecord]:
    """The addresses and domains of which the caller wants no new members."""
    with state.resources.unit_of_work() as uow:
        found = deny_lists.read(uow, caller.user_id)
    return envelope(DenyListRecord(addresses=[*found.addresses], domains=[*found.domains]))


@router.put("/deny-list", responses=refuses(DENY_LIST_ENTRY, DENY_LIST_TOO_LONG))
@RECORDS.threaded
def replace_deny_list(state: StateOf, caller: ListEditor, body: NewDenyList) -> Envelope[int]:
    """Replace the whole deny list; the answer is how many entries came or went.

    No new member with such an address comes onto any list of the caller's. Members stay.
    """
    entries = deny_lists.normalised(body.addresses, body.domains)
    with state.resources.unit_of_work() as uow:
        return envelope(deny_lists.replace(uow, caller.user_id, entries))


@router.patch("/deny-list", responses=refuses(DENY_LIST_ENTRY, DENY_LIST_TOO_LONG))
@RECORDS.threaded
def change_deny_list(state: StateOf, caller: ListEditor, body: DenyListChanges) -> Envelope[int]:
    """Add and remove entries of the deny list; the answer is how many came or went."""
    add = deny_lists.normalised(body.add_addresses, body.add_domains, verb="add_")
    remove = deny_lists.normalised(body.remove_addresses, body.remove_domains, verb="remove_")
    with state.resources.unit_of_work() as uow:
        return envelope(deny_lists.change(uow, caller.user_id, add=add, remove=remove))
