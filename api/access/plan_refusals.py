"""What an owner's plan refused is an event of their account, as well as an answer."""

import psycopg2
from fastapi import Request
from fastapi.responses import Response
from sqlalchemy.exc import SQLAlchemyError

from api.errors import problem_response
from api.state import state_of
from core.errors import DomainError
from core.logging import get_logger
from core.refusals.mailing import PLAN_REQUIRED
from services.events import event_origins
from services.events.catalogue import EventType
from services.events.recording import record_hourly

log = get_logger(__name__)

EVENTS = {
    PLAN_REQUIRED.code: EventType.PLAN_REFUSED,
    "quota.exceeded": EventType.QUOTA_REFUSED,
}


async def answer_refusal(request: Request, error: DomainError) -> Response:
    """Answer a refusal. One of the plan is recorded first, since its transaction was undone."""
    kind, credential = EVENTS.get(error.code), event_origins.current().credential
    if kind is not None and credential is not None and credential.user_id is not None:
        user_id, state = credential.user_id, state_of(request)
        try:
            await state.in_unit_of_work(lambda uow: record_hourly(uow, user_id, kind))
        except (DomainError, SQLAlchemyError, psycopg2.Error) as failure:
            # The refusal stands, and the next one is recorded again.
            log.warning("event.not_recorded", reason=type(failure).__name__)
    return problem_response(error)
