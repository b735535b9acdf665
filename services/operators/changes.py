"""Makes changes that operators request on their pages, such as changing a user's plan.

Each change is recorded as a security event in the operator's account, with the time and the IP
address. If an operator changes a user's account, a security event is also recorded in the user's
account.
"""

from enum import StrEnum

from core.ids import PersonId
from core.logging import get_logger
from models import PaymentOrder, Plan, Resolution
from services.access.caller import Caller
from services.accounts import accounts
from services.credits import settlement
from services.jobs import maintenance
from services.jobs import records as jobs
from services.security_events import EventType, record_person_event
from services.subscriptions import text_reviews
from storage.unit_of_work import UnitOfWork

log = get_logger(__name__)


class OperatorAct(StrEnum):
    PLAN_CHANGED = "plan.changed"
    ORDER_CREDITED = "order.credited"
    ORDER_REFUNDED = "order.refunded"
    JOB_RETRIED = "job.retried"
    JOB_CANCELLED = "job.cancelled"
    MAINTENANCE_BEGUN = "maintenance.begun"
    TEXTS_REVIEWED = "texts.reviewed"


def change_plan(uow: UnitOfWork, operator: Caller, person_id: PersonId, plan: Plan) -> bool:
    user = accounts.get_user(uow, person_id)
    is_changed = accounts.change_plan(uow, user, plan)
    if is_changed:
        _record_operator_event(uow, operator, OperatorAct.PLAN_CHANGED, user_id=user.id, plan=plan)
    return is_changed


def resolve_order(
    uow: UnitOfWork, operator: Caller, order_id: int, resolution: Resolution
) -> PaymentOrder:
    order = settlement.resolve_order(uow, order_id, resolution)
    is_credited = resolution is Resolution.CREDIT
    act = OperatorAct.ORDER_CREDITED if is_credited else OperatorAct.ORDER_REFUNDED
    _record_operator_event(uow, operator, act, order_id=order_id)
    return order


def retry_job(uow: UnitOfWork, operator: Caller, job_id: int) -> None:
    job = jobs.get_any_job(uow, job_id, lock=True)
    jobs.retry_locked_job(uow, job)
    _record_operator_event(uow, operator, OperatorAct.JOB_RETRIED, job_id=job_id)


def cancel_job(uow: UnitOfWork, operator: Caller, job_id: int) -> int:
    """Return 1 if this call cancelled the job, or 0 if the job has already finished."""
    cancelled = jobs.cancel_locked_job(uow, jobs.get_any_job(uow, job_id, lock=True))
    if cancelled:
        _record_operator_event(uow, operator, OperatorAct.JOB_CANCELLED, job_id=job_id)
    return cancelled


def request_maintenance(uow: UnitOfWork, operator: Caller, name: str) -> None:
    maintenance.request_run(uow, name)
    _record_operator_event(uow, operator, OperatorAct.MAINTENANCE_BEGUN, maintenance=name)


def review_texts(
    uow: UnitOfWork, operator: Caller, kind: text_reviews.Kind, record_id: int, version: str
) -> bool:
    """Record an operator's review of texts, unless they have changed since ``version``."""
    is_reviewed = text_reviews.mark_reviewed(uow, kind, record_id, version)
    if is_reviewed:
        _record_operator_event(uow, operator, OperatorAct.TEXTS_REVIEWED, kind=kind, id=record_id)
    return is_reviewed


def _record_operator_event(
    uow: UnitOfWork, operator: Caller, act: OperatorAct, /, **subject: int | str
) -> None:
    record_person_event(
        uow,
        operator.person_id,
        EventType.OPERATOR_ACTED,
        credential=operator.credential,
        act=act,
        **subject,
    )
    details = {"operator_id": operator.person_id, "act": act, **subject}
    uow.after_commit(lambda: log.info("operator.acted", **details))
