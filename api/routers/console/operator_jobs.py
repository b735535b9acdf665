"""For operators: jobs of all users, by lane and status, with why they failed."""

from fastapi import APIRouter
from fastapi.responses import Response

from api.access.requirements import PUBLIC
from api.console.navigation import OPERATORS
from api.console.of_operators.operator_visits import OperatorFormVisit, OperatorVisit
from api.console.typed_forms import TypedForm
from api.console.visits import ConsoleVisit
from api.limits.bulkheads import RECORDS
from api.parameters import Cursor, PathId
from core.errors import DomainError
from core.lanes import Lane
from models import FINISHED, JobStatus
from services import deployment_figures
from services.jobs import records
from services.operating import operator_acts, overdue_work
from services.paging import PageRequest

# No operations of the API, so not in its document.
PATH = f"{OPERATORS.path}/jobs"
router = APIRouter(prefix=PATH, dependencies=[PUBLIC], include_in_schema=False)

JOBS_ON_PAGE = 40
# The next page looks at as many more.
JOBS_LOOKED_AT = 100_000
_ANY = "any"
_STATUSES = [*((each.value, each.value) for each in JobStatus), (_ANY, "any")]
_LANES = [(_ANY, "any"), *((each.value, each.value) for each in Lane)]


@router.get("")
@RECORDS.threaded
def show_jobs(
    visit: OperatorVisit,
    status: str = JobStatus.FAILED,
    lane: str = _ANY,
    cursor: Cursor = None,
) -> Response:
    """The lanes, and jobs of all users, newest first; failed ones unless others are asked for."""
    of_status = next((each for each in JobStatus if each == status), None)
    of_lane = next((each for each in Lane if each == lane), None)
    wanted = PageRequest(JOBS_ON_PAGE, cursor=cursor)
    with visit.unit_of_work() as uow:
        found = records.list_all(
            uow, wanted, status=of_status, lane=of_lane, look_at=JOBS_LOOKED_AT
        )
    figures = deployment_figures.read(visit.state.resources.database)
    chosen = {"status": of_status or _ANY, "lane": of_lane or _ANY}
    return visit.page(
        "operator_jobs.html",
        jobs=found.rows,
        lanes=overdue_work.lanes_of(figures),
        form=TypedForm(chosen),
        chosen=chosen,
        statuses=_STATUSES,
        choices=_LANES,
        next_cursor=found.next_cursor,
        cursor=cursor,
    )


@router.get("/{job_id}")
@RECORDS.threaded
def show_job(visit: OperatorVisit, job_id: PathId) -> Response:
    return _page(visit, job_id, TypedForm())


@router.post("/{job_id}")
@RECORDS.threaded
def act_on_job(visit: OperatorFormVisit, job_id: PathId) -> Response:
    """Start a job again that ended badly, or cancel one that has not ended."""
    try:
        with visit.unit_of_work() as uow:
            if visit.form.get("act") == "retry":
                operator_acts.retry_job(uow, visit.caller, job_id)
                notice = "The job starts again."
            elif operator_acts.cancel_job(uow, visit.caller, job_id):
                notice = "It stops at its next step."
            else:
                notice = "It had ended already."
    except DomainError as error:
        return _page(visit, job_id, visit.refused(error))
    return visit.done(f"{PATH}/{job_id}", notice)


def _page(visit: ConsoleVisit, job_id: int, form: TypedForm) -> Response:
    with visit.unit_of_work() as uow:
        job = records.get_any(uow, job_id)
    return visit.form_page(
        "operator_job.html",
        form,
        job=job,
        error=records.error_shown(job),
        next_try_at=records.next_try_at(job),
        has_ended=job.status in FINISHED,
        may_be_retried=job.status in (JobStatus.FAILED, JobStatus.CANCELLED),
    )
