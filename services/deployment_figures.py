"""The figures of the whole deployment from the database, for its operator's metrics.

It is asked every few seconds for ever, so each statement reads narrow indexes alone: of jobs those
that have not ended, of all else a bounded number of rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from core.queues import Queue
from models import OrderStatus
from services.credits.verify import VERIFY_LEDGER
from storage.database import Database, Statement

# For each queue, and for each status of orders.
MAX_COUNTED = 1_000
_MAX_ENDPOINTS = 10_000
# Orders that wait for somebody: the others only get more.
_S = OrderStatus
_OPEN_ORDERS = (_S.CREATED, _S.PENDING, _S.PAID_UNCLAIMED, _S.REVIEW, _S.DISPUTED)


@dataclass(frozen=True)
class JobFigures:
    """The figures of jobs in the whole deployment.

    Attributes:
        unfinished: jobs by queue and status.
        due: queued jobs that are due by queue and kind, up to ``MAX_COUNTED`` sent and unsent ones.
        oldest: the seconds since the oldest job of each queue became due.
    """

    unfinished: Mapping[tuple[str, str], int]
    due: Mapping[tuple[str, str], int]
    oldest: Mapping[str, float]


@dataclass(frozen=True)
class WebhookFigures:
    """The figures of webhook endpoints in the whole deployment.

    Attributes:
        late_seconds: the longest time that an endpoint has waited for a worker.
        failing_seconds: the longest time that an endpoint has failed.
    """

    active: int = 0
    failing: int = 0
    late_seconds: float = 0.0
    failing_seconds: float = 0.0


@dataclass(frozen=True)
class MaintenanceFigures:
    """The figures of maintenance: late kinds and failed kinds.

    Attributes:
        late_seconds: the seconds since each kind became due.
        failed: the kinds whose last run failed.
    """

    late_seconds: Mapping[str, float] = field(default_factory=dict)
    failed: frozenset[str] = frozenset()


@dataclass(frozen=True)
class ConnectionFigures:
    """Open connections at the database server, and how many it allows.

    They are of all programs at the server, or to the database, or of our role: whichever are
    nearest to their limit.
    """

    open: int
    limit: int


@dataclass(frozen=True)
class DeploymentFigures:
    connections: ConnectionFigures
    jobs: JobFigures
    orders: Mapping[str, int]
    webhooks: WebhookFigures
    maintenance: MaintenanceFigures
    # The faults of the last daily check; ``None`` before the first one.
    ledger_faults: int | None


def read(database: Database) -> DeploymentFigures:
    """Raises ``psycopg2.Error``."""
    rows = database.rows(_MAINTENANCE)
    maintenance = MaintenanceFigures(
        {name: late for name, late, _, _ in rows},
        frozenset(name for name, _, has_failed, _ in rows if has_failed),
    )
    done = {name: done for name, _, _, done in rows}
    queues = list(Queue)
    unfinished: dict[tuple[str, str], int] = {
        (queue, status): 0 for queue in queues for status in ("queued", "running")
    }
    unfinished |= {(queue, status): count for queue, status, count in database.rows(_UNFINISHED)}
    due, oldest = {}, dict.fromkeys(map(str, queues), 0.0)
    for queue, kind, count, seconds in database.rows(_DUE, queues=queues, most=MAX_COUNTED):
        due[queue, kind] = count
        oldest[queue] = max(oldest[queue], seconds)
    jobs = JobFigures(unfinished, due, oldest)
    [(active, failing, late, failing_seconds)] = database.rows(_WEBHOOKS, most=_MAX_ENDPOINTS)
    # New events make no endpoint due: its job is queued, which some worker should take.
    late = max(late, jobs.oldest[Queue.WEBHOOKS])
    return DeploymentFigures(
        connections=ConnectionFigures(*database.rows(_CONNECTIONS)[0]),
        jobs=jobs,
        orders=dict(database.rows(_ORDERS, statuses=list(_OPEN_ORDERS), most=MAX_COUNTED)),
        webhooks=WebhookFigures(active, failing, late, failing_seconds),
        maintenance=maintenance,
        ledger_faults=done.get(VERIFY_LEDGER.name),
    )


# Superusers alone have those that are reserved. A limit of -1 is none.
_CONNECTIONS = Statement("""
    WITH connected AS (
        SELECT datname, usename FROM pg_stat_activity
        WHERE datid IS NOT NULL AND usename IS NOT NULL
    ), limited AS (
        SELECT count(*) AS open, CAST(current_setting('max_connections') AS int)
            - CAST(current_setting('superuser_reserved_connections') AS int) AS most
        FROM connected
        UNION ALL
        SELECT count(*) FILTER (WHERE connected.datname = current_database()),
            (SELECT datconnlimit FROM pg_database WHERE datname = current_database())
        FROM connected
        UNION ALL
        SELECT count(*) FILTER (WHERE usename = current_user),
            (SELECT rolconnlimit FROM pg_roles WHERE rolname = current_user)
        FROM connected
    )
    SELECT open, most FROM limited WHERE most > 0 ORDER BY CAST(open AS float) / most DESC LIMIT 1
    """)
# Apart, since queued jobs and running ones have indexes of their own.
_UNFINISHED = Statement(
    "SELECT queue, 'queued', count(*) FROM jobs WHERE status = 'queued' GROUP BY queue"
    " UNION ALL"
    " SELECT queue, 'running', count(*) FROM jobs WHERE status = 'running' GROUP BY queue"
)
# A queue's oldest job is among those that were sent first, or is the next one to be sent. A job
# that waits for its next turn does not count as old, though it was due when its first one came.
_DUE = Statement("""
    SELECT looked.queue, kind, count(*), CAST(coalesce(extract(epoch FROM now()
        - min(run_at) FILTER (WHERE attempt = 0 OR retries > 0)), 0) AS float)
    FROM unnest(CAST(:queues AS text[])) AS looked(queue) CROSS JOIN LATERAL (
        (SELECT kind, run_at, attempt, retries FROM jobs
         WHERE status = 'queued' AND jobs.queue = looked.queue AND sends > 0
         ORDER BY send_after LIMIT :most)
        UNION ALL
        (SELECT kind, run_at, attempt, retries FROM jobs
         WHERE status = 'queued' AND jobs.queue = looked.queue AND sends = 0
         ORDER BY send_after LIMIT :most)
    ) AS waiting
    WHERE run_at <= now() GROUP BY looked.queue, kind
    """)
_ORDERS = Statement("""
    SELECT looked.status, count(found.id)
    FROM unnest(CAST(:statuses AS text[])) AS looked(status) LEFT JOIN LATERAL (
        SELECT id FROM payment_orders WHERE payment_orders.status = looked.status
        ORDER BY created_at LIMIT :most
    ) AS found ON true
    GROUP BY looked.status
    """)
_WEBHOOKS = Statement("""
    SELECT count(*), count(failing_since),
        CAST(coalesce(extract(epoch FROM now() - min(due_at) FILTER (WHERE due_at < now())), 0)
            AS float),
        CAST(coalesce(extract(epoch FROM now() - min(failing_since)), 0) AS float)
    FROM (
        SELECT due_at, failing_since FROM webhook_endpoints
        WHERE state = 'active' ORDER BY id LIMIT :most
    ) AS endpoints
    """)
# All of them: this process does not know each kind. A release that drops a kind drops its row.
_MAINTENANCE = Statement("""
    SELECT name, CAST(greatest(extract(epoch FROM now() - due_at), 0) AS float),
        last_error IS NOT NULL, CAST(last_result->>'done' AS bigint)
    FROM maintenance
    """)
