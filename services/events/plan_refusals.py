"""What an owner's plan refused is an event. It is recorded after the refused act was undone."""

from core.refusals.access import QUOTA_EXCEEDED
from core.refusals.mailing import PLAN_REQUIRED
from services.events.catalogue import EventType
from services.events.recording import record_hourly
from storage.unit_of_work import UnitOfWork

_EVENTS = {
    PLAN_REQUIRED.code: EventType.PLAN_REFUSED,
    QUOTA_EXCEEDED.code: EventType.QUOTA_REFUSED,
}


def is_plan_refusal(code: str) -> bool:
    return code in _EVENTS


def record_refusal(uow: UnitOfWork, user_id: int, code: str) -> None:
    """Record a refusal with this code, unless an equal one was recorded within the hour."""
    record_hourly(uow, user_id, _EVENTS[code])
