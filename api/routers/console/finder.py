"""The finder of lists and members: a page, and what the keys ⌘K and Ctrl-K open."""

from fastapi import APIRouter
from fastapi.responses import Response

from api.access.requirements import PUBLIC
from api.console.assets import CONSOLE_PATH
from api.console.visits import Visit
from api.limits.bulkheads import RECORDS
from services.mailing.filters import finding

# No operation of the API, so not in its document.
router = APIRouter(prefix=CONSOLE_PATH, dependencies=[PUBLIC], include_in_schema=False)


@router.get("/find")
@RECORDS.threaded
def show_found(visit: Visit, q: str = "") -> Response:
    sought = q.replace("\0", "")[: finding.MAX_SOUGHT_CHARACTERS]
    with visit.unit_of_work() as uow:
        found = finding.find(uow, visit.caller, sought)
    least = finding.MIN_SOUGHT_CHARACTERS
    return visit.page("find.html", q=sought, found=found, least=least)
