"""Declaring tasks: one typed door, since Celery silently accepts a misspelt option."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from celery import Celery

from services.jobs.kinds import JobKind
from services.jobs.lease import Lease
from workers.job_runner import run_job
from workers.request_tasks import RequestHandler, answer_request


@dataclass(frozen=True)
class _Declared:
    name: str
    function: Callable[..., None]
    options: dict[str, Any]


@dataclass
class TaskSet:
    """The tasks of one module, registered with an application by ``bind``."""

    _declared: list[_Declared] = field(default_factory=list)

    def job(
        self,
        kind: JobKind,
        *,
        soft_time_limit: float | None = None,
        time_limit: float | None = None,
    ) -> Callable[[Callable[[Lease], None]], Callable[[Lease], None]]:
        """Declare what does a kind of durable work: called with the lease of a claimed job."""

        def declare(work: Callable[[Lease], None]) -> Callable[[Lease], None]:
            def task(*, job_id: int) -> None:
                run_job(job_id, work)

            self._add(kind.name, task, soft_time_limit, time_limit)
            return work

        return declare

    def request(self, name: str) -> Callable[[RequestHandler], RequestHandler]:
        """Declare what does request-only work: from the caller's payload to its result."""

        def declare(answer: RequestHandler) -> RequestHandler:
            def task(*, request_id: str) -> None:
                answer_request(request_id, answer)

            self._add(name, task, None, None)
            return answer

        return declare

    def periodic(self, name: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
        """Declare what beat sends: harmless when it runs twice or not at all for a while."""

        def declare(work: Callable[[], None]) -> Callable[[], None]:
            self._add(name, work, None, None)
            return work

        return declare

    def bind(self, app: Celery) -> None:
        for declared in self._declared:
            app.task(declared.function, name=declared.name, **declared.options)

    def _add(
        self,
        name: str,
        function: Callable[..., None],
        soft_time_limit: float | None,
        time_limit: float | None,
    ) -> None:
        limits = {"soft_time_limit": soft_time_limit, "time_limit": time_limit}
        options = {name: value for name, value in limits.items() if value is not None}
        self._declared.append(_Declared(name, function, options))
