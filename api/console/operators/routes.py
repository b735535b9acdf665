"""Pages on which operators see overdue work, users, orders, jobs and maintenance tasks.

For users who aren't operators, the pages respond with status 404. The routes check that the user is
an operator before they read a submitted form.
"""

from typing import Annotated

from fastapi import Depends
from fastapi.responses import Response

from api.auth.page_sessions import PageSession, require_member
from api.console.console_display import QUOTAS, format_status
from api.console.navigation import OPERATORS_PAGE
from api.console.requests import (
    ConsoleAccess,
    ConsoleRequest,
    EmptyForm,
    build_router,
    shows_errors_on,
)
from api.console.security_event_lines import EventLine, build_event_lines
from api.console.task_labels import describe_task
from api.console.typed_forms import TypedForm, build_field_error
from api.errors import STATUS_OF
from api.limits.bulkheads import MONEY
from api.paging import Cursor
from api.record_ids import PathId, PathPersonId, parse_id
from api.state import Transaction
from core.errors import DomainError, Kind
from core.errors.people import EMAIL_INVALID
from core.errors.requests import ROUTE_NOT_FOUND
from core.queues import Queue
from models import FINISHED, JobStatus, OrderStatus, PaymentOrder, Plan, RecordedEvent, Resolution
from services import deployment_figures, security_events
from services.access import quotas
from services.accounts import accounts
from services.credits import orders
from services.deployment_figures import MAX_COUNTED
from services.jobs import records
from services.operators import changes, maintenance_runs, overdue_work, user_accounts
from services.paging import PageOfRows, PageRequest
from services.subscriptions import lists, text_reviews
from services.subscriptions.imports import records as import_records
from storage.unit_of_work import UnitOfWork

router = build_router(OPERATORS_PAGE.path)

USERS_PATH = f"{OPERATORS_PAGE.path}/users"
ORDERS_PATH = f"{OPERATORS_PAGE.path}/orders"
JOBS_PATH = f"{OPERATORS_PAGE.path}/jobs"
MAINTENANCE_PATH = f"{OPERATORS_PAGE.path}/maintenance"

USERS_ON_PAGE = 50
EVENTS_ON_PAGE = 10
LISTS_ON_PAGE = 50
# The page of a user combines equal events, such as logins, among this many events.
MAX_GROUPED_EVENTS = 50
ORDERS_ON_PAGE = 50
REVIEWS_ON_PAGE = 20
JOBS_ON_PAGE = 40
# The maximum number of jobs that a query of the jobs page examines. A query that reaches
# ``MAX_SCANNED_JOBS`` stops, and the next page continues there.
MAX_SCANNED_JOBS = 100_000

# The statuses of orders that wait for an operator or the payer.
_OPEN_ORDER_STATUSES = (OrderStatus.REVIEW, OrderStatus.DISPUTED, OrderStatus.PAID_UNCLAIMED)
_ANY_VALUE = "any"
_STATUS_CHOICES = [
    (_ANY_VALUE, "All statuses"),
    *((each.value, format_status(each)) for each in JobStatus),
]
_ORDER_STATUS_CHOICES = [
    (_ANY_VALUE, "All statuses"),
    *((each.value, format_status(each)) for each in OrderStatus),
]
_TEXTS_CHANGED_NOTICE = "The texts were changed in the meantime. Please review them again."
_MISSING_RESOLUTION = TypedForm(errors={"resolution": "Choose one of the two options."}, status=422)
_RESOLUTION_NOTICES = {
    Resolution.CREDIT: "The order was resolved, and the credits were added.",
    Resolution.REFUNDED: "The order was marked as refunded.",
}


def _require_operator(member: PageSession | None) -> PageSession:
    session = require_member(member)
    if not session.is_operator:
        raise ROUTE_NOT_FOUND()
    return session


OperatorPage = Annotated[
    ConsoleRequest, Depends(ConsoleAccess(permission=None, check=_require_operator))
]
# Operators can submit forms only within 15 minutes after a login.
OperatorForm = Annotated[
    ConsoleRequest,
    Depends(ConsoleAccess(permission=None, check=_require_operator, is_form=True, is_recent=True)),
]


@router.get("")
def show_overdue_work(console: OperatorPage) -> Response:
    work = overdue_work.read_overdue_work(console.state.resources)
    return console.render_page(
        "operator_overview.html",
        work=work,
        late_queues=[
            each for each in work.queues if each.oldest_seconds >= overdue_work.MIN_LATE_SECONDS
        ],
        orders=[
            (status.value, work.figures.orders.get(status, 0)) for status in _OPEN_ORDER_STATUSES
        ],
        most=MAX_COUNTED,
    )


@router.get("/texts")
def show_texts(console: OperatorPage) -> Response:
    """Redirect to the operators' overview after the login that ``review_texts`` may require."""
    return console.redirect(OPERATORS_PAGE.path)


@router.post("/texts")
def review_texts(console: OperatorForm, uow: Transaction) -> Response:
    """Mark the suspicious texts of a list or member field as reviewed.

    Reviewed texts are hidden until the owner changes them.
    """
    kind: text_reviews.Kind = "field" if console.form.get("kind") == "field" else "list"
    record_id = console.form.get("id", "")
    version = console.form.get("version", "")
    is_reviewed = changes.review_texts(uow, console.caller, kind, parse_id(record_id) or 0, version)
    notice = "The texts were marked as reviewed. Changed texts are shown again."
    return console.redirect(OPERATORS_PAGE.path, notice if is_reviewed else _TEXTS_CHANGED_NOTICE)


@router.get("/users")
def show_users(
    console: OperatorPage, uow: Transaction, user: str | None = None, cursor: Cursor = None
) -> Response:
    """Show the users who own lists, or redirect to the page of ``user``.

    ``user``: an e-mail address or a user id.
    """
    form = TypedForm()
    if user is not None and user.strip():
        try:
            return console.redirect(f"{USERS_PATH}/{user_accounts.find_user(uow, user.strip()).id}")
        except DomainError as error:
            form = TypedForm({"user": user})
            if error.kind is Kind.NOT_FOUND:
                form = TypedForm(form.typed, {"user": error.message}, status=STATUS_OF[error.kind])
            else:
                form = form.add_error(error, {EMAIL_INVALID.code: "user"})
    page = accounts.list_owners(uow, PageRequest(USERS_ON_PAGE, cursor=cursor))
    return console.render_page(
        "operator_users.html",
        form,
        owners=page.rows,
        figures=user_accounts.read_owner_figures(uow, [user.id for user, _ in page.rows]),
        next_cursor=page.next_cursor,
    )


@router.get("/users/{user_id}")
def show_user(
    console: OperatorPage, uow: Transaction, user_id: PathPersonId, form: EmptyForm
) -> Response:
    user = accounts.get_user(uow, user_id)
    account = user_accounts.read_account(uow, user)
    usage = quotas.list_uses(uow, user)
    events = security_events.list_events(uow, user.id, PageRequest(MAX_GROUPED_EVENTS)).rows
    lines = zip(events, build_event_lines(uow, user.account_id, events), strict=True)
    repetitions: dict[tuple[str, ...], list[tuple[RecordedEvent, EventLine]]] = {}
    for event_line in lines:
        repetitions.setdefault(_describe_repetition(event_line), []).append(event_line)
    return console.render_page(
        "operator_user.html",
        form.fill({"plan": account.user.plan}),
        account=account,
        lists=user_accounts.read_list_figures(uow, user.account_id, LISTS_ON_PAGE),
        mailing_days=user_accounts.MAILING_DAYS,
        user=account.user,
        plans=[(plan.value, format_status(plan)) for plan in Plan],
        quotas=[(label, _describe_use(usage[quota])) for quota, label in QUOTAS.items()],
        figures=user_accounts.read_owner_figures(uow, [user.id])[user.id],
        repeated_events=[*repetitions.values()][:EVENTS_ON_PAGE],
    )


def _describe_use(use: quotas.QuotaUse) -> str:
    return f"{use.used:,} of {use.limit:,}" if use.limit is not None else f"{use.used:,}, unlimited"


def _describe_repetition(event_line: tuple[RecordedEvent, EventLine]) -> tuple[str, ...]:
    event, line = event_line
    details = () if line.about else sorted(event.detail.items())
    return (event.type, line.text, line.about, repr(details))


@router.post("/users/{user_id}")
@shows_errors_on(show_user)
def change_plan(console: OperatorForm, uow: Transaction, user_id: PathPersonId) -> Response:
    plan_name = console.form.get("plan")
    if plan_name not in tuple(Plan):
        raise build_field_error("plan", "choose one of the listed plans")
    plan = Plan(plan_name)
    is_changed = changes.change_plan(uow, console.caller, user_id, plan)
    notice = (
        f"The user is now on the {plan} plan."
        if is_changed
        else "The user was already on this plan."
    )
    return console.redirect(f"{USERS_PATH}/{user_id}", notice)


@router.get("/orders")
@MONEY.threaded
def show_orders(
    console: OperatorPage, uow: Transaction, status: str = _ANY_VALUE, cursor: Cursor = None
) -> Response:
    selected_status = next((each for each in OrderStatus if each == status), None)
    # Without a filter, the orders in review have a table of their own on the first page.
    is_all = selected_status is None
    reviews: PageOfRows[PaymentOrder] = PageOfRows([], None)
    if is_all and cursor is None:
        reviews = orders.list_orders_of_all_users(
            uow, PageRequest(REVIEWS_ON_PAGE), status=OrderStatus.REVIEW
        )
    page = orders.list_orders_of_all_users(
        uow,
        PageRequest(ORDERS_ON_PAGE, cursor=cursor),
        *[PaymentOrder.status != OrderStatus.REVIEW] * is_all,
        status=selected_status,
    )
    user_ids = [order.user_id for order in (*reviews.rows, *page.rows)]
    return console.render_page(
        "operator_orders.html",
        orders=page.rows,
        reviews=reviews,
        addresses=accounts.find_addresses(uow, user_ids),
        chosen=selected_status or _ANY_VALUE,
        statuses=_ORDER_STATUS_CHOICES,
        form=TypedForm({"status": selected_status or _ANY_VALUE}),
        next_cursor=page.next_cursor,
    )


@router.get("/orders/{order_id}")
@MONEY.threaded
def show_order(
    console: OperatorPage, uow: Transaction, order_id: PathId, form: EmptyForm
) -> Response:
    return _render_order(console, uow, order_id, form)


@router.post("/orders/{order_id}")
@MONEY.threaded
@shows_errors_on(show_order)
def resolve_order(console: OperatorForm, uow: Transaction, order_id: PathId) -> Response:
    resolution = next((each for each in Resolution if each == console.form.get("resolution")), None)
    if resolution is None:
        return _render_order(console, uow, order_id, _MISSING_RESOLUTION)
    changes.resolve_order(uow, console.caller, order_id, resolution)
    return console.redirect(f"{ORDERS_PATH}/{order_id}", _RESOLUTION_NOTICES[resolution])


def _render_order(
    console: ConsoleRequest, uow: UnitOfWork, order_id: int, form: TypedForm
) -> Response:
    order = orders.get_order_of_any_user(uow, order_id)
    return console.render_page(
        "operator_order.html",
        form,
        order=order,
        addresses=accounts.find_addresses(uow, [order.user_id]),
        changes=orders.list_changes(uow, order_id),
        events=orders.list_events(uow, order_id),
    )


@router.get("/jobs")
def show_jobs(
    console: OperatorPage,
    uow: Transaction,
    status: str = JobStatus.FAILED,
    queue: str = _ANY_VALUE,
    cursor: Cursor = None,
) -> Response:
    selected_status = next((each for each in JobStatus if each == status), None)
    selected_queue = next((each for each in Queue if each == queue), None)
    figures = deployment_figures.read_figures(console.state.resources.database)
    page = records.list_all_jobs(
        uow,
        PageRequest(JOBS_ON_PAGE, cursor=cursor),
        status=selected_status,
        queue=selected_queue,
        max_scanned=MAX_SCANNED_JOBS,
    )
    selected_values = {
        "status": selected_status or _ANY_VALUE,
        "queue": selected_queue or _ANY_VALUE,
    }
    return console.render_page(
        "operator_jobs.html",
        jobs=[(records.is_retryable(job), job) for job in page.rows],
        addresses=accounts.find_addresses(uow, (job.user_id for job in page.rows)),
        queues=overdue_work.list_queues(figures),
        chosen=selected_values,
        statuses=_STATUS_CHOICES,
        next_cursor=page.next_cursor,
    )


@router.get("/jobs/{job_id}")
def show_job(console: OperatorPage, uow: Transaction, job_id: PathId, form: EmptyForm) -> Response:
    job = records.get_any_job(uow, job_id)
    task = import_records.find_import_of_job(uow, job)
    return console.render_page(
        "operator_job.html",
        form,
        job=job,
        addresses=accounts.find_addresses(uow, [job.user_id]),
        error=records.describe_error(job),
        next_try_at=records.get_retry_time(job),
        has_ended=job.status in FINISHED,
        is_retryable=records.is_retryable(job),
        is_retry_sensible=records.is_retry_sensible(job),
        task=task,
        list_title=lists.get_list(uow, task.list_id, archived=True).title if task else None,
    )


@router.post("/jobs/{job_id}")
@shows_errors_on(show_job)
def change_job(console: OperatorForm, uow: Transaction, job_id: PathId) -> Response:
    """Retry a job that failed or was cancelled, or cancel an unfinished job."""
    if console.form.get("act") == "retry":
        changes.retry_job(uow, console.caller, job_id)
        notice = "The job will run again."
    elif changes.cancel_job(uow, console.caller, job_id):
        notice = "The job stops at its next step."
    else:
        notice = "The job had already finished."
    return console.redirect(f"{JOBS_PATH}/{job_id}", notice)


@router.get("/maintenance")
def show_maintenance(console: OperatorPage, uow: Transaction, form: EmptyForm) -> Response:
    runs = maintenance_runs.list_maintenance(uow)
    failed_count = sum(run.row.last_error is not None for run in runs)
    return console.render_page(
        "operator_maintenance.html", form, runs=runs, failed_count=failed_count
    )


@router.post("/maintenance")
@shows_errors_on(show_maintenance)
def start_maintenance(console: OperatorForm, uow: Transaction) -> Response:
    """Enqueue a maintenance task, even if it isn't due."""
    name = console.form.get("name", "")
    changes.request_maintenance(uow, console.caller, name)
    return console.redirect(
        MAINTENANCE_PATH, f"The task “{describe_task(name)}” will run within seconds."
    )
