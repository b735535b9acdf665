"""Runs a worker that also knows the probe jobs of the tests.

``python -m tests.support.probe.worker worker --queue bulk …`` starts a worker for probe jobs.
"""

import argparse
import os
from datetime import timedelta

from core.queues import Queue
from services.jobs import lost_jobs
from tests.support.probe import kind  # noqa: F401 - its kinds
from workers import in_flight_work, job_runner
from workers.main import run_worker
from workers.serving import plan_serving


def main() -> None:
    # Set the variable before Celery is imported, as the `pressroom` command does. Don't set the
    # variable when this module is imported, because tests also import this module.
    os.environ.setdefault("REMAP_SIGTERM", "SIGQUIT")
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["worker"])
    parser.add_argument("--queue", type=Queue, action="append", required=True)
    parser.add_argument("--concurrency", type=int)
    options = parser.parse_args()
    # The worker gives up a stuck thread or process, or a job that crashes it, after two seconds, so
    # that tests wait less.
    in_flight_work.MAX_STUCK_SECONDS = 2.0
    job_runner.KILL_AFTER_SECONDS = 2.0
    lost_jobs.LAST_CRASH_PATIENCE = timedelta(seconds=2)
    run_worker(plan_serving(options.queue, options.concurrency))


if __name__ == "__main__":
    main()
