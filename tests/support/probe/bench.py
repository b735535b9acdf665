"""What a test does with probes: enqueue them, and look at what became of them."""

from dataclasses import dataclass
from typing import Any

from devstack.harness.polling import eventually
from devstack.harness.running import Running
from devstack.harness.stack import Stack
from models import FINISHED, Job
from tests.support.probe.kind import TABLES, plan_committed

PROBE_WORKER = "tests.support.probe.worker"


@dataclass(frozen=True)
class Bench:
    stack: Stack

    def start_worker(self, *queues: str, concurrency: int = 2, **environment: str) -> Running:
        return self.stack.start_worker(
            *(queues or ("bulk",)), concurrency=concurrency, module=PROBE_WORKER, **environment
        )

    def enqueue(self, on_behalf_of: int | None = None, /, **plan: Any) -> int:
        return plan_committed(self.stack.resources, on_behalf_of, **plan)

    def job(self, job_id: int) -> Job:
        with self.stack.resources.unit_of_work() as uow:
            return uow.session.get_one(Job, job_id)

    def finished(self, job_id: int, *, within: float = 30.0) -> Job:
        """The job once it has ended."""

        def ended() -> Job | None:
            job = self.job(job_id)
            return job if job.status in FINISHED else None

        return eventually(ended, within=within, what=f"the end of job {job_id}")

    def all_finished(self, *, within: float) -> None:
        def none_left() -> bool:
            return not self.stack.query("SELECT 1 FROM jobs WHERE finished_at IS NULL LIMIT 1")

        eventually(none_left, within=within, what="the end of all jobs")

    def started(self, job_id: int, attempt: int = 1) -> int:
        """The process that works at this attempt, once it does."""
        statement = "SELECT pid FROM probe_starts WHERE job_id = %s AND attempt = %s"
        rows = eventually(
            lambda: self.stack.query(statement, job_id, attempt),
            within=20,
            what=f"attempt {attempt} of job {job_id}",
        )
        return int(str(rows[0][0]))

    def starts(self, job_id: int) -> int:
        return self._count("probe_starts", job_id)

    def effects(self, job_id: int) -> int:
        return self._count("probe_effects", job_id)

    def _count(self, table: str, job_id: int) -> int:
        rows = self.stack.query(f"SELECT count(*) FROM {table} WHERE job_id = %s", job_id)
        return int(str(rows[0][0]))


def make_bench(stack: Stack) -> Bench:
    """A stack with the probe's tables, and no process yet."""
    stack.query(TABLES)
    return Bench(stack)
