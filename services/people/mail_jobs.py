from core.lanes import Lane
from core.scopes import Scope
from services.jobs import kinds
from services.jobs.kinds import JobKind


def mail_kind(name: str) -> JobKind:
    """Register a kind of job that sends one mail."""
    return kinds.register(
        JobKind(
            name=name,
            lane=Lane.MAIL,
            scope=Scope.SUBSCRIPTION_FULL,
            retryable=True,
        )
    )
