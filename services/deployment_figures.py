"""Reads the figures of the whole deployment from the database, for the operator's metrics.

The figures are read every few seconds. Each statement therefore reads only narrow indexes, and
either only unfinished jobs or a limited number of rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from core.queues import Queue
from models import OrderStatus
from services.credits.verify import VERIFY_LEDGER
from storage.database import Database, Statement

# The largest number that is counted per queue, and per status of orders.
MAX_COUNTED = 1_000
_MAX_ENDPOINTS = 10_000
# The statuses of orders that wait for the payer, the provider or an operator. The number of orders
# in any other status only grows.
_WAITING_STATUSES = (
    OrderStatus.CREATED,
    OrderStatus.PENDING,
    OrderStatus.PAID_UNCLAIMED,
    OrderStatus.REVIEW,
    OrderStatus.DISPUTED,
)


@dataclass(frozen=True)
class JobFigures:
    """The figures of jobs in the whole deployment.

    Attributes:
        unfinished: the number of unfinished jobs by queue and status.
        due: the number of due jobs by queue and kind. Up to ``MAX_COUNTED`` sent jobs and
            ``MAX_COUNTED`` unsent jobs are counted per queue.
        oldest: the seconds since the oldest job became due, by queue.
    """

    unfinished: Mapping[tuple[str, str], int]
    due: Mapping[tuple[str, str], int]
    oldest: Mapping[str, float]


@dataclass(frozen=True)
class WebhookFigures:
    """The figures of webhook endpoints in the whole deployment.

    Attributes:
        late_seconds: the longest time for which an endpoint has waited for a worker.
        failing_seconds: the longest time for which an endpoint has been failing.
    """

    active: int = 0
    failing: int = 0
    late_seconds: float = 0.0
    failing_seconds: float = 0.0


@dataclass(frozen=True)
class MaintenanceFigures:
    """The figures of maintenance in the whole deployment.

    Attributes:
        late_seconds: the seconds since a run became due, by kind of maintenance.
        failed: the kinds of maintenance whose last run failed.
    """

    late_seconds: Mapping[str, float] = field(default_factory=dict)
    failed: frozenset[str] = frozenset()


@dataclass(frozen=True)
class ConnectionFigures:
    """The number of open connections to the database server, and their limit.

    The server, the database and the application's role have separate limits. The figures are about
    the limit that is closest to being reached.
    """

    open: int
    limit: int


@dataclass(frozen=True)
class DeploymentFigures:
    """All figures of the deployment.

    Attributes:
        orders: the number of waiting orders by status.
        ledger_faults: the number of faults that the last daily verification of the ledger found,
            or ``None`` before the first verification.
    """

    connections: ConnectionFigures
    jobs: JobFigures
    orders: Mapping[str, int]
    webhooks: WebhookFigures
    maintenance: MaintenanceFigures
    ledger_faults: int | None


def read_figures(database: Database) -> DeploymentFigures:
    """Return all figures of the deployment. Raises ``psycopg2.Error``."""
    rows = database.rows(_MAINTENANCE)
    maintenance = MaintenanceFigures(
        {name: late for name, late, _, _ in rows},
        frozenset(name for name, _, has_failed, _ in rows if has_failed),
    )
    results = {name: result for name, _, _, result in rows}
    queues = list(Queue)
    unfinished: dict[tuple[str, str], int] = {
        (queue, status): 0 for queue in queues for status in ("queued", "running")
    }
    unfinished |= {(queue, status): count for queue, status, count in database.rows(_UNFINISHED)}
    due = {}
    oldest = dict.fromkeys(map(str, queues), 0.0)
    for queue, kind, count, seconds in database.rows(_DUE, queues=queues, most=MAX_COUNTED):
        due[queue, kind] = count
        oldest[queue] = max(oldest[queue], seconds)
    jobs = JobFigures(unfinished, due, oldest)
    [(active, failing, late, failing_seconds)] = database.rows(_WEBHOOKS, most=_MAX_ENDPOINTS)
    # A new event doesn't make an endpoint due, but queues the endpoint's job. A waiting job
    # therefore counts as a late endpoint too.
    late = max(late, jobs.oldest[Queue.WEBHOOKS])
    return DeploymentFigures(
        connections=ConnectionFigures(*database.rows(_CONNECTIONS)[0]),
        jobs=jobs,
        orders=dict(database.rows(_ORDERS, statuses=list(_WAITING_STATUSES), most=MAX_COUNTED)),
        webhooks=WebhookFigures(active, failing, late, failing_seconds),
        maintenance=maintenance,
        ledger_faults=results.get(VERIFY_LEDGER.name),
    )


# Connections that are reserved for superusers don't count. A limit of -1 means no limit.
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
# Queued and running jobs are counted separately, because they have different indexes.
_UNFINISHED = Statement(
    "SELECT queue, 'queued', count(*) FROM jobs WHERE status = 'queued' GROUP BY queue"
    " UNION ALL"
    " SELECT queue, 'running', count(*) FROM jobs WHERE status = 'running' GROUP BY queue"
)
# The oldest job of a queue is among the jobs that were sent first or will be sent next. A job that
# waits for its next turn doesn't count as old, although it became due before its first turn.
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
# Selects all kinds of maintenance, because this process may not know every kind. A release that
# removes a kind also removes its row.
_MAINTENANCE = Statement("""
    SELECT name, CAST(greatest(extract(epoch FROM now() - due_at), 0) AS float),
        last_error IS NOT NULL, CAST(last_result->>'done' AS bigint)
    FROM maintenance
    """)
