from fastapi import APIRouter, Request, Response

from api.access.requirements import UnrestrictedCaller
from api.bodies.json_route import JsonRoute
from api.limits.bulkheads import RECORDS
from api.openapi import array_pages, refuses
from api.parameters import ArrayPaging, PathId, StateOf, link_next
from api.schemas.envelope import Envelope, envelope
from api.schemas.oauth import GrantRecord
from core.refusals.oauth import GRANT_NOT_FOUND
from services.oauth import grants

router = APIRouter(tags=["OAuth"], route_class=JsonRoute)


@router.get("/grants", responses=array_pages())
@RECORDS.threaded
def list_grants(
    request: Request,
    response: Response,
    state: StateOf,
    caller: UnrestrictedCaller,
    paging: ArrayPaging,
) -> Envelope[list[GrantRecord]]:
    """The programs that may act for the caller, with the newest consent first."""
    with state.resources.unit_of_work() as uow:
        given = grants.list_of(uow, caller.user_id, paging)
    link_next(request, response, given)
    return envelope([GrantRecord.model_validate(each) for each in given.rows])


@router.delete("/grants/{grant_id}", responses=refuses(GRANT_NOT_FOUND))
@RECORDS.threaded
def revoke_grant(state: StateOf, caller: UnrestrictedCaller, grant_id: PathId) -> Envelope[int]:
    """Revoke a grant with all its tokens, from the next request on: 1, or 0 when it was revoked
    before."""
    with state.resources.unit_of_work() as uow:
        return envelope(grants.revoke(uow, grant_id=grant_id, user_id=caller.user_id))
