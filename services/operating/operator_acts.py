"""What an operator changes on their pages. Each act is an event of the operator's own account.

So it is known who did it, when and from where; the other account's events tell what was done.
"""

from enum import StrEnum

from core.logging import get_logger
from models import PaymentOrder, Plan, Resolution
from services.access.caller import Caller
from services.events.catalogue import EventType
from services.events.recording import record
from services.jobs import records as jobs
from services.jobs import upkeep
from services.money.topups import settlement
from services.people import accounts
from storage.unit_of_work import UnitOfWork

log = get_logger(__name__)


class OperatorAct(StrEnum):
    PLAN_CHANGED = "plan.changed"
    ORDER_CREDITED = "order.credited"
    ORDER_REFUNDED = "order.refunded"
    JOB_RETRIED = "job.retried"
    JOB_CANCELLED = "job.cancelled"
    UPKEEP_BEGUN = "upkeep.begun"


_RESOLVED = {
    Resolution.CREDIT: OperatorAct.ORDER_CREDITED,
    Resolution.REFUNDED: OperatorAct.ORDER_REFUNDED,
}


def change_plan(uow: UnitOfWork, operator: Caller, user_id: int, plan: Plan) -> bool:
    """Whether the plan was another one before. Raises ``user.not_found``."""
    user = accounts.get(uow, user_id)
    is_changed = accounts.change_plan(uow, user, plan)
    if is_changed:
        _record(uow, operator, OperatorAct.PLAN_CHANGED, user_id=user.id, plan=plan)
    return is_changed


def resolve_order(
    uow: UnitOfWork, operator: Caller, order_id: int, resolution: Resolution
) -> PaymentOrder:
    """Raises ``order.not_found`` and ``order.not_in_review``."""
    order = settlement.resolve(uow, order_id, resolution)
    _record(uow, operator, _RESOLVED[resolution], order_id=order_id)
    return order


def retry_job(uow: UnitOfWork, operator: Caller, job_id: int) -> None:
    """Raises ``job.not_found`` and ``job.not_retryable``."""
    job = jobs.get_any(uow, job_id, lock=True)
    jobs.restart(uow, job)
    _record(uow, operator, OperatorAct.JOB_RETRIED, job_id=job_id)


def cancel_job(uow: UnitOfWork, operator: Caller, job_id: int) -> int:
    """1, or 0 when the job had ended. Raises ``job.not_found``."""
    cancelled = jobs.stop(uow, jobs.get_any(uow, job_id, lock=True))
    if cancelled:
        _record(uow, operator, OperatorAct.JOB_CANCELLED, job_id=job_id)
    return cancelled


def begin_upkeep(uow: UnitOfWork, operator: Caller, name: str) -> None:
    """Raises ``upkeep.not_found`` and ``upkeep.running``."""
    upkeep.make_due(uow, name)
    _record(uow, operator, OperatorAct.UPKEEP_BEGUN, upkeep=name)


def _record(uow: UnitOfWork, operator: Caller, act: OperatorAct, /, **subject: int | str) -> None:
    record(
        uow,
        operator.user_id,
        EventType.OPERATOR_ACTED,
        credential=operator.credential,
        act=act,
        **subject,
    )
    uow.after_commit(
        lambda: log.info("operator.acted", operator_id=operator.user_id, act=act, **subject)
    )
