"""Reads metrics from the database, so that operators can monitor the whole deployment.

Every API process reads the metrics, at most once every few seconds. To be fast, the SQL statements
use narrow indexes, and read only unfinished jobs or a limited number of rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from core.queues import Queue
from models import OrderStatus
from services.credits.verify import VERIFY_LEDGER
from storage.database import Database, Statement

# The maximum number of jobs counted per queue, and of orders counted per status.
MAX_COUNTED = 1_000
_MAX_ENDPOINTS = 10_000
# The statuses of unfinished orders, which wait for the payer, the provider or an operator.
_WAITING_STATUSES = (
    OrderStatus.CREATED,
    OrderStatus.PENDING,
    OrderStatus.PAID_UNCLAIMED,
    OrderStatus.REVIEW,
    OrderStatus.DISPUTED,
)


@dataclass(frozen=True)
class JobFigures:
    """Metrics about all jobs of the deployment.

    Attributes:
        due: the number of due jobs by queue and kind. In each queue, at most ``MAX_COUNTED`` sent
            jobs and as many unsent jobs are counted.
        oldest: the seconds since the oldest due job of each queue became due.
    """

    unfinished: Mapping[tuple[str, str], int]
    due: Mapping[tuple[str, str], int]
    oldest: Mapping[str, float]


@dataclass(frozen=True)
class WebhookFigures:
    active: int = 0
    failing: int = 0
    late_seconds: float = 0.0
    failing_seconds: float = 0.0


@dataclass(frozen=True)
class MaintenanceFigures:
    late_seconds: Mapping[str, float] = field(default_factory=dict)
    failed: frozenset[str] = frozenset()


@dataclass(frozen=True)
class ConnectionFigures:
    """The open connections to the database server, and their limit.

    The server, the database and the role have separate limits. The figures describe the limit with
    the highest share of used connections.
    """

    open: int
    limit: int


@dataclass(frozen=True)
class DeploymentFigures:
    """All metrics about the deployment.

    ``ledger_faults`` is ``None`` before the first daily verification.
    """

    connections: ConnectionFigures
    jobs: JobFigures
    orders: Mapping[str, int]
    webhooks: WebhookFigures
    maintenance: MaintenanceFigures
    ledger_faults: int | None


def read_figures(database: Database) -> DeploymentFigures:
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
    # The delay of webhooks includes the age of the oldest webhook job, because a new event enqueues
    # a job without changing the endpoint's due time.
    late = max(late, jobs.oldest[Queue.WEBHOOKS])
    return DeploymentFigures(
        connections=ConnectionFigures(*database.rows(_CONNECTIONS)[0]),
        jobs=jobs,
        orders=dict(database.rows(_ORDERS, statuses=list(_WAITING_STATUSES), most=MAX_COUNTED)),
        webhooks=WebhookFigures(active, failing, late, failing_seconds),
        maintenance=maintenance,
        ledger_faults=results.get(VERIFY_LEDGER.name),
    )


# Connections that are reserved for superusers are subtracted from the limit. A connection limit of
# -1 means that there is no limit.
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
# Counts queued and running jobs separately, because each status has its own index.
_UNFINISHED = Statement(
    "SELECT queue, 'queued', count(*) FROM jobs WHERE status = 'queued' GROUP BY queue"
    " UNION ALL"
    " SELECT queue, 'running', count(*) FROM jobs WHERE status = 'running' GROUP BY queue"
)
# The oldest due job is found by reading the sent jobs and the unsent jobs with the earliest
# ``send_after``. Jobs that wait for a later turn don't count as the oldest due job, because their
# ``run_at`` is the due time of the first turn.
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
# Selects every kind of maintenance in the database, including kinds that a newer release of
# Pressroom has added.
_MAINTENANCE = Statement("""
    SELECT name, CAST(greatest(extract(epoch FROM now() - due_at), 0) AS float),
        last_error IS NOT NULL, CAST(last_result->>'done' AS bigint)
    FROM maintenance
    """)
