"""Checks the workers of each queue, the periodic maintenance, and the backups."""

from collections.abc import Iterator
from datetime import timedelta
from importlib.metadata import version

import redis
from sqlalchemy import Connection, text

from core import clock
from core.queues import Queue
from core.settings import Settings
from services.backup import manifests
from services.doctor.runner import Diagnosis, diagnose, fine, skipped, wrong
from storage.backup_files.places import open_sealed_place
from storage.redis.canaries import Canaries, QueueAge

# The limits of the checks equal the limits of the alerts
# (deploy/observability/prometheus/alerts.yml).
_MAX_QUEUE_SECONDS = 30.0
_MAX_LATE_SECONDS = 2 * 3600
_MAX_BACKUP_LATENESS = timedelta(hours=6)
_MAX_MAIL_WAIT = timedelta(minutes=10)

_SELECT_MAINTENANCE = text(
    "SELECT name, extract(epoch FROM now() - due_at) AS late, last_error FROM maintenance"
    " WHERE name NOT LIKE 'backup%' ORDER BY name"
)
# A mail counts as waiting if it is due and unsent. A retried mail counts as waiting since its first
# failure, even if its next attempt isn't due yet.
_SELECT_WAITING_MAILS = text("""
    SELECT count(*) AS mails,
        extract(epoch FROM now() - min(waiting_since)) AS oldest_seconds,
        (array_agg(last_reason ORDER BY waiting_since))[1] AS last_reason
    FROM (
        SELECT coalesce(failing_since, run_at) AS waiting_since, last_reason
        FROM jobs WHERE queue = :queue AND status = 'queued'
        UNION ALL
        SELECT coalesce(failing_since, run_at), last_reason
        FROM jobs WHERE queue = :queue AND status = 'running'
    ) AS unfinished
    WHERE waiting_since < now() - make_interval(secs => :seconds)
""")


def check_workers(client: redis.Redis) -> Iterator[Diagnosis]:
    ages = Canaries(client).read_ages()
    for queue in Queue:
        yield _check_queue(queue, ages.get(queue))
    own_version = version("pressroom")
    others = sorted({age.version for age in ages.values()} - {own_version, ""})
    if others:
        finding = f"workers have {', '.join(others)}, this command has {own_version}"
        yield fine("version", finding, "Run the same release everywhere after an upgrade.")
    else:
        yield fine("version", own_version)


def _check_queue(queue: Queue, age: QueueAge | None) -> Diagnosis:
    advice = f"Start a worker with --queue {queue}, or check the log of the running worker."
    if age is None:
        return wrong(queue, "no worker serves this queue", advice)
    if age.is_silent:
        return wrong(
            queue, f"no worker has served this queue for {age.silent_seconds:.0f} s", advice
        )
    advice = "Start more workers for this queue."
    finding = f"a message waits {age.delay_seconds:.2f} s"
    return diagnose(queue, finding, age.delay_seconds > _MAX_QUEUE_SECONDS, advice)


def check_maintenance(connection: Connection) -> Iterator[Diagnosis]:
    rows = connection.execute(_SELECT_MAINTENANCE).all()
    if not rows:
        yield skipped("schedule", "nothing is scheduled until the first worker starts")
        return
    late = [f"{row.name} ({row.late / 3600:.0f} h)" for row in rows if row.late > _MAX_LATE_SECONDS]
    finding = f"overdue: {', '.join(late)}" if late else "nothing is overdue"
    advice = f"Start a worker with --queue {Queue.MAINTENANCE}, or check its log."
    yield diagnose("schedule", finding, bool(late), advice)
    failing = [f"{row.name}: {row.last_error}" for row in rows if row.last_error is not None]
    advice = "Run `pressroom maintenance NAME` to see the error."
    yield diagnose("last runs", "; ".join(failing) or "none failed", bool(failing), advice)


def check_waiting_mails(connection: Connection) -> Diagnosis:
    """Check how long mails have been waiting.

    Any process can run this check, because queued mails are stored in the database.
    """
    values = {"queue": Queue.MAIL, "seconds": _MAX_MAIL_WAIT.total_seconds()}
    waiting = connection.execute(_SELECT_WAITING_MAILS, values).one()
    if not waiting.mails:
        return fine("waiting", f"no mail has waited for {_describe_minutes(_MAX_MAIL_WAIT)}")
    oldest = _describe_minutes(timedelta(seconds=float(waiting.oldest_seconds)))
    finding = f"{waiting.mails} unsent, the oldest for {oldest}"
    if waiting.last_reason:
        finding += f": {waiting.last_reason}"
    advice = (
        f"Check that a worker serves the queue {Queue.MAIL} with PRESSROOM_MAIL_URL, and run "
        "pressroom doctor in this worker."
    )
    return wrong("waiting", finding, advice)


def _describe_minutes(duration: timedelta) -> str:
    return f"{duration.total_seconds() / 60:.0f} min"


def check_backup(settings: Settings) -> Iterator[Diagnosis]:
    if settings.backup_url is None:
        yield skipped(
            "newest", "PRESSROOM_BACKUP_URL is not set for this process", "See docs/backup.md."
        )
        return
    place = open_sealed_place(settings, max_wait_seconds=0.0)
    ids = manifests.list_backup_ids(place)
    advice = "Run `pressroom backup create` to see the error."
    if not ids:
        yield wrong("newest", "there is no backup yet", advice)
        return
    newest = manifests.read_manifest(place, ids[-1])
    age = clock.now() - newest.finished_at
    max_age = timedelta(hours=settings.backup_hours) + _MAX_BACKUP_LATENESS
    finding = f"{newest.id}, {age.total_seconds() / 3600:.0f} h old"
    yield diagnose("newest", finding, bool(settings.backup_hours) and age > max_age, advice)
