from fastapi import APIRouter
from fastapi.responses import Response

from api.access.page_sessions import Member, session_page
from api.access.requirements import PUBLIC
from api.limits.bulkheads import RECORDS
from api.parameters import StateOf
from api.signed_files import import_errors_url
from services.mailing.imports import records
from services.paging import PageRequest
from services.people.page_urls import IMPORTS_PATH

# No operations of the API, so not in its document.
router = APIRouter(dependencies=[PUBLIC], include_in_schema=False)

IMPORTS_ON_PAGE = 20


@router.get(IMPORTS_PATH)
@RECORDS.threaded
def show_imports(state: StateOf, member: Member) -> Response:
    """The person's last imports, each with the file of the rows that were not added."""
    with state.resources.unit_of_work() as uow:
        found = records.list_of(uow, member.caller, PageRequest(IMPORTS_ON_PAGE), list_id=None)
    imports = [
        {
            "task": task,
            "errors_url": None if task.files_removed_at else import_errors_url(state, task.id),
        }
        for task in found.rows
    ]
    return session_page(member, state, "imports.html", imports=imports)
