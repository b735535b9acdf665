import re
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import psycopg2
import pytest
from sqlalchemy import make_url

from core.queues import Queue
from devstack.harness.stack import Stack
from models import JobStatus
from storage.task_messages import queue_name
from tests.support.deployment import files, pods
from workers.serving import plan_serving

PASSWORD = "word-of-the-scaler"
# Each queue has three due jobs: a job that was not yet sent to the queue, a job that was sent, and
# a job that a worker is running. Each queue also has a job that isn't due yet, and a finished job.
DUE_JOBS = 3
JOBS = f"""
INSERT INTO jobs (kind, queue, status, sends, send_after, lease_expires_at, finished_at)
SELECT 'attachment.process', queue, status, sends, now() + late, lease, ended
FROM unnest(%s::text[]) AS queue, (VALUES
    ('{JobStatus.QUEUED}', 0, interval '-1 second', null::timestamptz, null::timestamptz),
    ('{JobStatus.QUEUED}', 1, interval '10 seconds', null, null),
    ('{JobStatus.RUNNING}', 1, interval '0', now() + interval '1 hour', null),
    ('{JobStatus.QUEUED}', 0, interval '1 hour', null, null),
    ('{JobStatus.SUCCEEDED}', 1, interval '0', null, now())
) AS job(status, sends, late, lease, ended)
"""


def triggers(kind: str) -> dict[Queue, dict[str, Any]]:
    return {
        Queue(trigger["name"]): trigger
        for scaled in pods.resources_of_kind("ScaledObject").values()
        for trigger in scaled["spec"]["triggers"]
        if trigger["type"] == kind
    }


@pytest.mark.tier("check")
def test_every_queue_scales_the_deployment_of_its_worker() -> None:
    scaled = {
        Queue(trigger["name"]): each["spec"]["scaleTargetRef"]["name"]
        for each in pods.resources_of_kind("ScaledObject").values()
        for trigger in each["spec"]["triggers"]
    }
    served = {
        queue: each.workload
        for each in pods.processes()
        if each.words[1] == "worker"
        for queue in each.queues
    }
    assert scaled == served
    for name in scaled.values():
        assert "replicas" not in pods.resources_of_kind("Deployment")[name]["spec"]


@pytest.mark.tier("check")
def test_autoscaler_measures_request_queues_in_redis_and_job_queues_in_postgres() -> None:
    redis_triggers = triggers("redis")
    postgres_triggers = triggers("postgresql")
    assert redis_triggers.keys() == {Queue.REQUEST, Queue.PHOTOS}
    assert postgres_triggers.keys() == set(Queue) - redis_triggers.keys()
    for queue, trigger in redis_triggers.items():
        assert trigger["metadata"]["listName"] == queue_name(queue)
    all_triggers = [*redis_triggers.values(), *postgres_triggers.values()]
    credentials = {each["authenticationRef"]["name"] for each in all_triggers}
    assert credentials == set(pods.resources_of_kind("TriggerAuthentication"))


@pytest.mark.tier("check")
@pytest.mark.parametrize("queue", [*triggers("redis"), *triggers("postgresql")])
def test_autoscaler_adds_a_process_only_if_the_existing_ones_are_fully_used(
    queue: Queue,
) -> None:
    metadata = (triggers("redis") | triggers("postgresql"))[queue]["metadata"]
    target = metadata.get("targetQueryValue") or metadata["listLength"]
    [process] = [each for each in pods.processes() if queue in each.queues]
    max_concurrent_jobs = plan_serving(process.queues).limits[queue]
    if queue == Queue.MEDIA:
        max_concurrent_jobs = int(process.container["resources"]["limits"]["cpu"])
    assert int(target) >= max_concurrent_jobs


@pytest.fixture(scope="module")
def scaler_connection(
    make_stack: Callable[[str], Stack],
) -> Iterator[psycopg2.extensions.connection]:
    """A database connection with the role that docs/kubernetes.md creates for scaling workers."""
    stack = make_stack("scaling")
    page = (files.ROOT / "docs/kubernetes.md").read_text()
    [role] = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    stack.query(JOBS, list(triggers("postgresql")))
    stack.query(role.replace("…", PASSWORD))
    url = make_url(stack.owner_url).set(username="pressroom_scaler", password=PASSWORD)
    try:
        text = url.render_as_string(hide_password=False)
        with closing(psycopg2.connect(text)) as connection:
            connection.autocommit = True
            yield connection
    finally:
        stack.query("DROP OWNED BY pressroom_scaler")
        stack.query("DROP ROLE pressroom_scaler")


@pytest.mark.parametrize("queue", triggers("postgresql"))
def test_autoscaler_query_counts_due_jobs_with_index_scans(
    scaler_connection: psycopg2.extensions.connection, queue: Queue
) -> None:
    query = triggers("postgresql")[queue]["metadata"]["query"]
    with scaler_connection.cursor() as cursor:
        cursor.execute(query)
        assert cursor.fetchall() == [(DUE_JOBS,)]
        # Disable sequential and bitmap scans, which Postgres prefers because the tables are small.
        cursor.execute("SET enable_seqscan = off")
        cursor.execute("SET enable_bitmapscan = off")
        cursor.execute(f"EXPLAIN {query}")
        plan = "\n".join(line for (line,) in cursor.fetchall())
        assert "Seq Scan" not in plan, plan
        # The query may read the whole index of running jobs, because only few jobs run at a time.
        # Each running job occupies a thread or a process of a worker.
        assert plan.count(f"Index Cond: (queue = '{queue}'::text)") == 1, plan
        assert plan.count(f"Index Cond: ((queue = '{queue}'::text) AND (send_after <= ") == 1, plan
        assert "using ix_jobs_lease_expires_at" in plan, plan
        assert plan.count("Limit") == DUE_JOBS, plan


@pytest.mark.parametrize(
    "statement", ["SELECT result FROM jobs", "SELECT 1 FROM users", "DELETE FROM jobs"]
)
def test_autoscaler_role_cannot_read_results_or_users_or_change_jobs(
    scaler_connection: psycopg2.extensions.connection, statement: str
) -> None:
    with (
        scaler_connection.cursor() as cursor,
        pytest.raises(psycopg2.errors.InsufficientPrivilege),
    ):
        cursor.execute(statement)
