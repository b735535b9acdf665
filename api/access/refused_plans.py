"""What an owner's plan refused is an event of their account, as well as an answer."""

from functools import partial

import psycopg2
from fastapi import Request
from fastapi.responses import Response
from sqlalchemy.exc import SQLAlchemyError

from api.errors import problem_response
from api.state import state_of
from core.errors import DomainError
from core.logging import get_logger
from services.events import event_origins
from services.events.plan_refusals import is_plan_refusal, record_refusal

log = get_logger(__name__)


async def answer_refusal(request: Request, error: DomainError) -> Response:
    """Answer a refusal. One of the plan is recorded first, since its transaction was undone."""
    credential = event_origins.current().credential
    user_id = None if credential is None else credential.user_id
    if user_id is not None and is_plan_refusal(error.code):
        record = partial(record_refusal, user_id=user_id, code=error.code)
        try:
            await state_of(request).in_unit_of_work(record)
        except (DomainError, SQLAlchemyError, psycopg2.Error) as failure:
            # The refusal stands, and the next one is recorded again.
            log.warning("event.not_recorded", reason=type(failure).__name__)
    return problem_response(error)
