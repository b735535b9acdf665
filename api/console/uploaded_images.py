"""Waits for the conversion of an image that a user has added in the console."""

from api.console.requests import ConsoleRequest
from api.waiting.disconnects import run_while_connected
from core.errors import DomainError
from models import Attachment
from services.attachments import records
from services.jobs.idempotency import AcceptedJob
from storage.redis.notifications import build_job_topic
from storage.unit_of_work import UnitOfWork

# The maximum time that a request waits for the conversion of an image.
WAIT_SECONDS = 15.0


async def wait_for_image(console: ConsoleRequest, accepted: AcceptedJob) -> Attachment:
    """Wait up to ``WAIT_SECONDS`` for an image's conversion, and return the image.

    If the conversion isn't complete after ``WAIT_SECONDS``, the returned image is still being
    processed. If the conversion has failed, the function deletes the image and raises the error of
    the conversion.
    """
    job_end = console.state.jobs.wait(
        build_job_topic(accepted.job_id), WAIT_SECONDS, account_id=console.account_id
    )
    await run_while_connected(console.request.receive, job_end)
    outcome = await console.state.in_unit_of_work(_take_outcome, accepted)
    if isinstance(outcome, DomainError):
        raise outcome
    return outcome


def _take_outcome(uow: UnitOfWork, accepted: AcceptedJob) -> Attachment | DomainError:
    outcome = records.find_outcome(uow, accepted)
    if isinstance(outcome, DomainError):
        records.delete_failed_attachment(uow, accepted)
    return outcome
