"""For operators: the periodic work of the deployment, its last runs and its next ones."""

from fastapi import APIRouter
from fastapi.responses import Response

from api.access.requirements import PUBLIC
from api.console.navigation import OPERATORS
from api.console.of_operators.operator_visits import OperatorFormVisit, OperatorVisit
from api.console.typed_forms import TypedForm
from api.console.visits import ConsoleVisit
from api.limits.bulkheads import RECORDS
from core.errors import DomainError
from services.operating import operator_acts, upkeep_runs

# No operations of the API, so not in its document.
PATH = f"{OPERATORS.path}/upkeep"
router = APIRouter(prefix=PATH, dependencies=[PUBLIC], include_in_schema=False)


@router.get("")
@RECORDS.threaded
def show_upkeep(visit: OperatorVisit) -> Response:
    return _page(visit, TypedForm())


@router.post("")
@RECORDS.threaded
def begin_upkeep(visit: OperatorFormVisit) -> Response:
    """Let a worker run one kind now, though it is not due."""
    name = visit.form.get("name", "")
    try:
        with visit.unit_of_work() as uow:
            operator_acts.begin_upkeep(uow, visit.caller, name)
    except DomainError as error:
        return _page(visit, visit.refused(error))
    return visit.done(PATH, f"A worker runs {name} within seconds.")


def _page(visit: ConsoleVisit, form: TypedForm) -> Response:
    with visit.unit_of_work() as uow:
        runs = upkeep_runs.all_of_them(uow)
    return visit.form_page("operator_upkeep.html", form, runs=runs)
