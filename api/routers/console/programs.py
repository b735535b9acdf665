"""What acts for an owner without them, at a glance, and the programs that they gave access."""

from fastapi import APIRouter
from fastapi.responses import Response

from api.access.requirements import PUBLIC
from api.console.assets import CONSOLE_PATH
from api.console.of_programs.key_forms import scope_words
from api.console.visits import ConsoleVisit, FormVisit, Visit
from api.limits.bulkheads import RECORDS
from api.parameters import PathId
from core.refusals.oauth import GRANT_NOT_FOUND
from models import EndpointState, WebhookEndpoint
from services.access import api_keys
from services.oauth import grants
from services.oauth.grants import GrantSummary
from services.people.page_urls import GRANTS_PATH
from services.webhooks import webhook_endpoints

# No operations of the API, so not in its document.
router = APIRouter(dependencies=[PUBLIC], include_in_schema=False)


@router.get(f"{CONSOLE_PATH}/programs")
@RECORDS.threaded
def show_programs(visit: Visit) -> Response:
    with visit.unit_of_work() as uow:
        endpoints = webhook_endpoints.list_of(uow, visit.caller)
        troubled = [each for each in endpoints if _is_troubled(each)]
        return visit.page(
            "programs.html",
            keys=len(api_keys.live_of(uow, visit.user_id)),
            grants=len(grants.list_of(uow, visit.user_id).rows),
            endpoints=len(endpoints),
            troubled=len(troubled),
        )


@router.get(GRANTS_PATH)
@RECORDS.threaded
def show_access(visit: Visit) -> Response:
    """The programs that may act for the person."""
    with visit.unit_of_work() as uow:
        given = grants.list_of(uow, visit.user_id).rows
    shown = [(each, scope_words(each.scopes)) for each in given]
    return visit.page("access.html", grants=shown)


@router.get(f"{GRANTS_PATH}/{{grant_id}}/end")
@RECORDS.threaded
def show_access_end(visit: Visit, grant_id: PathId) -> Response:
    """What it means to take the access back, before it is done."""
    return visit.page("end_access.html", grant=_own(visit, grant_id))


@router.post(f"{GRANTS_PATH}/{{grant_id}}/end")
@RECORDS.threaded
def end_access(visit: FormVisit, grant_id: PathId) -> Response:
    """Revoke the grant of one program."""
    grant = _own(visit, grant_id)
    with visit.unit_of_work() as uow:
        grants.revoke(uow, grant_id=grant.id, user_id=visit.user_id)
    return visit.done(GRANTS_PATH, f"“{grant.client_name}” has no access any more.")


def _is_troubled(endpoint: WebhookEndpoint) -> bool:
    return endpoint.failing_since is not None or endpoint.state != EndpointState.ACTIVE


def _own(visit: ConsoleVisit, grant_id: int) -> GrantSummary:
    """One in force; raises ``grant.not_found``."""
    with visit.unit_of_work() as uow:
        for each in grants.list_of(uow, visit.user_id).rows:
            if each.id == grant_id:
                return each
    raise GRANT_NOT_FOUND()
