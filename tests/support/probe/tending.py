"""Runs a worker that has an extra kind of maintenance, which is due every two seconds.

``python -m tests.support.probe.tending worker --queue bulk …`` starts the worker. Each run of the
extra maintenance writes its start and its end to the table `tended`. The table `tending` says how
many seconds a run of the extra maintenance takes, and whether the run fails.
"""

import os
import time
from datetime import datetime, timedelta

from sqlalchemy import text

from core.queues import Queue
from services.jobs.maintenance import register_maintenance
from storage.resources import Resources
from tests.support.probe import worker

TABLES = """
    CREATE TABLE tending (seconds float NOT NULL, fails boolean NOT NULL);
    INSERT INTO tending VALUES (0, false);
    CREATE TABLE tended (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        pid integer NOT NULL,
        began_at timestamptz NOT NULL DEFAULT clock_timestamp(),
        ended_at timestamptz
    );
"""


def tend(resources: Resources, _began_at: datetime) -> int:
    with resources.unit_of_work() as uow:
        seconds, fails = uow.session.execute(text("SELECT seconds, fails FROM tending")).one()
        run_id = uow.session.scalar(
            text("INSERT INTO tended (pid) VALUES (:pid) RETURNING id"), {"pid": os.getpid()}
        )
    if fails:
        raise ValueError("told to fail")
    time.sleep(seconds)
    with resources.unit_of_work() as uow:
        statement = text("UPDATE tended SET ended_at = clock_timestamp() WHERE id = :id")
        uow.session.execute(statement, {"id": run_id})
    return 1


TEND = register_maintenance("probe.tend", every=timedelta(seconds=2), queue=Queue.BULK, run=tend)


if __name__ == "__main__":
    worker.main()
