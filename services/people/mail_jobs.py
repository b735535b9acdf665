from core.lanes import Lane
from core.scopes import Scope
from models import Job
from services.jobs import kinds
from services.jobs.kinds import JobKind
from storage.unit_of_work import UnitOfWork

# A day's worth at one a minute: a mail server may be away for a while.
_PATIENT = 1500


def _nothing_more(_: UnitOfWork, __: Job) -> None:
    """A mail that could not be sent leaves what it is about as it is."""


def mail_kind(name: str) -> JobKind:
    """Register a kind of job that sends one mail."""
    return kinds.register(
        JobKind(
            name=name,
            lane=Lane.IO,
            scope=Scope.SUBSCRIPTION_FULL,
            retryable=True,
            on_abandoned=_nothing_more,
            max_retries=_PATIENT,
        )
    )
