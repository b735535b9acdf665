from core.lanes import Lane
from core.scopes import Scope
from services.jobs import kinds
from services.jobs.kinds import JobKind

# A day's worth at one a minute: a mail server may be away for a while.
_PATIENT = 1500


def mail_kind(name: str) -> JobKind:
    """Register a kind of job that sends one mail."""
    return kinds.register(
        JobKind(
            name=name,
            lane=Lane.IO,
            scope=Scope.SUBSCRIPTION_FULL,
            retryable=True,
            max_retries=_PATIENT,
        )
    )
