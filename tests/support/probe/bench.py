"""Enqueues probe jobs, which exist only for tests of the job system, and reads their results."""

from dataclasses import dataclass
from typing import Any

from devstack.harness.polling import eventually
from devstack.harness.running import Running
from devstack.harness.stack import Stack
from models import FINISHED, Job
from tests.support.probe.kind import TABLES, enqueue_committed_probe

PROBE_WORKER = "tests.support.probe.worker"


@dataclass(frozen=True)
class Bench:
    """A stack whose database has the tables of probe jobs, which exist only for tests."""

    stack: Stack

    def start_worker(self, *queues: str, concurrency: int = 2, **environment: str) -> Running:
        return self.stack.start_worker(
            *(queues or ("bulk",)), concurrency=concurrency, module=PROBE_WORKER, **environment
        )

    def enqueue(self, on_behalf_of: int | None = None, /, **plan: Any) -> int:
        return enqueue_committed_probe(self.stack.resources, on_behalf_of, **plan)

    def job(self, job_id: int) -> Job:
        with self.stack.resources.unit_of_work() as uow:
            return uow.session.get_one(Job, job_id)

    def finished(self, job_id: int, *, within: float = 30.0) -> Job:
        def find_ended_job() -> Job | None:
            job = self.job(job_id)
            return job if job.status in FINISHED else None

        return eventually(find_ended_job, within=within, what=f"the end of job {job_id}")

    def all_finished(self, *, within: float) -> None:
        def have_all_ended() -> bool:
            return not self.stack.query("SELECT 1 FROM jobs WHERE finished_at IS NULL LIMIT 1")

        eventually(have_all_ended, within=within, what="the end of all jobs")

    def started(self, job_id: int, attempt: int = 1) -> int:
        statement = "SELECT pid FROM probe_starts WHERE job_id = %s AND attempt = %s"
        rows = eventually(
            lambda: self.stack.query(statement, job_id, attempt),
            within=20,
            what=f"attempt {attempt} of job {job_id}",
        )
        return int(str(rows[0][0]))

    def starts(self, job_id: int) -> int:
        return self._count_rows("probe_starts", job_id)

    def effects(self, job_id: int) -> int:
        return self._count_rows("probe_effects", job_id)

    def _count_rows(self, table: str, job_id: int) -> int:
        rows = self.stack.query(f"SELECT count(*) FROM {table} WHERE job_id = %s", job_id)
        return int(str(rows[0][0]))


def make_bench(stack: Stack) -> Bench:
    stack.query(TABLES)
    return Bench(stack)
