from fastapi import APIRouter

from api.access.requirements import UnrestrictedCaller
from api.bodies.json_route import JsonRoute
from api.limits.bulkheads import RECORDS
from api.openapi import refuses
from api.parameters import PathId, StateOf
from api.schemas.envelope import Envelope, envelope
from api.schemas.oauth import GrantRecord
from core.refusals.oauth import GRANT_NOT_FOUND
from services.oauth import grants

router = APIRouter(tags=["OAuth"], route_class=JsonRoute)


@router.get("/grants")
@RECORDS.threaded
def list_grants(state: StateOf, caller: UnrestrictedCaller) -> Envelope[list[GrantRecord]]:
    """The programs that may act for the caller, with the newest consent first; at most 1,000."""
    with state.resources.unit_of_work() as uow:
        given = grants.list_of(uow, caller.user_id)
        return envelope([GrantRecord.model_validate(each) for each in given])


@router.delete("/grants/{grant_id}", responses=refuses(GRANT_NOT_FOUND))
@RECORDS.threaded
def revoke_grant(state: StateOf, caller: UnrestrictedCaller, grant_id: PathId) -> Envelope[int]:
    """Revoke a grant with all its tokens, from the next request on: 1, or 0 when it was revoked
    before."""
    with state.resources.unit_of_work() as uow:
        return envelope(grants.revoke(uow, grant_id=grant_id, user_id=caller.user_id))
