"""Tests that each fault fires its alert, and that the alert clears after the end of the fault.

With `PRESSROOM_SIZE=full`, all faults are tested, otherwise only two of them.
"""

import os
import secrets
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import psycopg2
import pytest

from devstack.harness.free_ports import free_port
from devstack.harness.polling import eventually
from devstack.harness.proxy import Proxy
from tests.support.commands.running import run_json_command
from tests.support.composer.composer_stack import build_unique_post
from tests.support.composer.composing import METADATA
from tests.support.credits import topups
from tests.support.credits.credits import BALANCE, grant
from tests.support.credits.payments import SandboxPayments
from tests.support.faults.calls import search_photos, subscribe
from tests.support.faults.faults import FAULTS, fault_at_proxy, making_calls
from tests.support.faults.watched_site import Site
from tests.support.faults.watching import shorten_rule_times
from tests.support.http.replies import data, send
from tests.support.http.webhook_receiver import (
    announce_events,
    end_retry_pauses,
    new_endpoint,
    running_receiver,
)
from tests.support.mail.server import ScriptedSmtpServer, running_scripted_server
from tests.support.observability.alert_rules import ALERTS, alerts
from tests.support.people.visiting import Visitor, new_account
from tests.support.sizes import FULL
from tests.support.stack.held_rows import uncommitted
from tests.support.stack.maintenance import run_maintenance
from tests.support.stack.signals import list_children

SHORT = ("Postgres gone", "mail server refuses")
PAUSE_SECONDS = 0.3
CALLER_COUNT = 3
# The number of concurrent callers of one route. The API has fewer threads than this for the route.
MANY_CALLERS = 24
# Enough concurrent callers to open the circuit breaker of the language model quickly.
MODEL_CALLERS = 6
IDLE_CONNECTION_COUNT = 20
# In the dictionary ``Site.workers``, the worker that runs maintenance tasks has this key.
MAINTENANCE_WORKER = "request"
CONVERTER_MODULE = "services.attachments.isolation.child"
MAX_CRASHES = 3
LOCK_TABLE = "LOCK TABLE credit_accounts IN ACCESS EXCLUSIVE MODE"
# Changes a balance without firing database triggers. Only a superuser of Postgres can set
# ``session_replication_role``.
CHANGE_BALANCE = (
    "SET session_replication_role = replica;"
    " UPDATE credit_accounts SET balance = balance + %s WHERE user_id = %s"
)
# The response to each write while Redis can't write its file.
DISK_FULL_RESPONSE = b"-MISCONF Errors writing to the AOF file: No space left on device\r\n"
# The response to each command while Redis loads its data after a start.
LOADING_RESPONSE = b"-LOADING Redis is loading the dataset in memory\r\n"
JSON_HEADERS = b"Content-Type: application/json\r\nConnection: close\r\n"
RATE_LIMITED_RESPONSE = (
    b"HTTP/1.1 429 Too Many Requests\r\n"
    + JSON_HEADERS
    + b"Retry-After: 1\r\nContent-Length: 2\r\n\r\n{}"
)
NO_PHOTOS = b'{"total": 0, "total_pages": 0, "results": []}'
LOW_QUOTA_RESPONSE = (
    b"HTTP/1.1 200 OK\r\n"
    + JSON_HEADERS
    + b"X-Ratelimit-Limit: 50\r\nX-Ratelimit-Remaining: 2\r\n"
    + b"Content-Length: %d\r\n\r\n%b" % (len(NO_PHOTOS), NO_PHOTOS)
)

Call = Callable[[Site, httpx2.Client], object]
Fault = Callable[[Site], AbstractContextManager[None]]


@dataclass(frozen=True)
class Trouble:
    """The alert that must fire during a fault and stop after it.

    Attributes:
        labels: the labels that the alert must have.
        begin: causes the fault, by default the fault with the same name in ``FAULTS``.
        calls: a call that callers repeat during the fault and after it, ignoring the responses.
        callers: the number of callers.
    """

    alert: str
    labels: Mapping[str, str] = field(default_factory=dict)
    begin: Fault | None = None
    calls: Call | None = None
    callers: int = CALLER_COUNT


def _read_balance(_: Site, client: httpx2.Client) -> object:
    return client.get(BALANCE)


@contextmanager
def _without_table(site: Site, name: str) -> Iterator[None]:
    """Rename a table, so that it is missing as after a failed migration."""
    site.stack.query(f"ALTER TABLE {name} RENAME TO {name}_elsewhere")
    try:
        yield
    finally:
        site.stack.query(f"ALTER TABLE {name}_elsewhere RENAME TO {name}")


@contextmanager
def _connections_left_open(site: Site) -> Iterator[None]:
    """Open idle connections until the database accepts no more, as another program might do."""
    [(name, open_now)] = site.stack.query(
        "SELECT current_database(), count(*) FROM pg_stat_activity"
        " WHERE datname = current_database()"
    )
    limit = f"ALTER DATABASE {name} CONNECTION LIMIT"
    site.stack.query(f"{limit} {int(str(open_now)) + IDLE_CONNECTION_COUNT}")
    try:
        with ExitStack() as opened:
            for _ in range(IDLE_CONNECTION_COUNT):
                opened.enter_context(closing(psycopg2.connect(site.stack.owner_url)))
            yield
    finally:
        site.stack.query(f"{limit} -1")


@contextmanager
def _password_guessed(site: Site) -> Iterator[None]:
    email = new_account(site.stack)

    def guess(site: Site, client: object) -> None:
        with site.stack.client() as browser:
            Visitor(site.stack, browser).log_in(email, "a wrong guess")

    with making_calls(site, [guess] * CALLER_COUNT, pause=PAUSE_SECONDS):
        yield


def _upload(site: Site) -> None:
    with site.client() as client:
        assert send(client, prefer="respond-async").status_code == 202


@contextmanager
def _queue_without_worker(site: Site) -> Iterator[None]:
    with site.workers["media"].stopped():
        _upload(site)
        yield


@contextmanager
def _worker_killed_at_work(site: Site) -> Iterator[None]:
    """Kill a worker during a job, so that another worker finds the job's expired lease."""
    with ExitStack() as faults, site.client() as client:
        faults.enter_context(site.proxies["mail"].misbehaving(Proxy.hang))
        subscribe(site, client)
        _await_attempt(site, "mail")
        faults.enter_context(site.workers["mail"].stopped())
        yield


@contextmanager
def _job_kills_its_process(site: Site) -> Iterator[None]:
    """Kill the process in each attempt at a job, until no attempts are left."""
    media = site.workers["media"]
    with ExitStack() as faults:
        with media.stopped():
            _upload(site)
            faults.enter_context(site.proxies["s3"].misbehaving(Proxy.hang))
        for attempt in range(1, MAX_CRASHES + 1):
            _await_attempt(site, "media", attempt)
            for pid in media.get_running().children():
                os.kill(pid, signal.SIGKILL)
        failed_job = "SELECT 1 FROM jobs WHERE queue = 'media' AND status = 'failed'"
        eventually(lambda: site.stack.query(failed_job), within=90, what="the job's failure")
        yield


def _await_attempt(site: Site, queue: str, attempt: int = 1) -> None:
    running_job = "SELECT 1 FROM jobs WHERE queue = %s AND status = 'running' AND attempt = %s"
    eventually(
        lambda: site.stack.query(running_job, queue, attempt),
        within=30,
        what=f"attempt {attempt} in the queue {queue}",
    )


@contextmanager
def _converters_killed(site: Site) -> Iterator[None]:
    """Kill the image converters, as the kernel does when memory runs out."""

    def kill_converters(site: Site, client: object) -> None:
        for process in site.workers["media"].get_running().children():
            for pid in list_children(process):
                if CONVERTER_MODULE in _read_command(pid):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)

    with making_calls(site, [kill_converters] * CALLER_COUNT, pause=PAUSE_SECONDS):
        yield


def _read_command(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text()
    return ""


@contextmanager
def _maintenance_fails(site: Site) -> Iterator[None]:
    with _without_table(site, "credit_checkpoints"):
        _make_due(site, "credits.verify")
        yield
    run_maintenance(site.stack, "credits.verify")


@contextmanager
def _maintenance_without_worker(site: Site) -> Iterator[None]:
    with site.workers[MAINTENANCE_WORKER].stopped():
        _make_due(site, "credits.verify")
        yield


@contextmanager
def _nothing_purged(site: Site) -> Iterator[None]:
    """Leave an idempotency record in the database for two days after the record expired."""
    with site.workers[MAINTENANCE_WORKER].stopped():
        with site.client() as client:
            data(send(client, key=secrets.token_hex()))
        site.stack.query("UPDATE idempotency_records SET expires_at = now() - interval '2 days'")
        yield
    run_maintenance(site.stack, "maintenance.purge")


@contextmanager
def _backup_fails(site: Site) -> Iterator[None]:
    """Replace the folder of the backups with a file."""
    site.backups.rmdir()
    site.backups.touch()
    site.stack.query("INSERT INTO departures (kind, user_id) VALUES ('erased', 1)")
    _make_due(site, "backup.journal")
    try:
        yield
    finally:
        site.backups.unlink()
        site.backups.mkdir()
        _make_due(site, "backup.journal")


def _make_due(site: Site, maintenance: str) -> None:
    site.stack.query(
        "UPDATE maintenance SET due_at = now(), send_after = now() WHERE name = %s", maintenance
    )


@contextmanager
def _recipients_unknown(site: Site) -> Iterator[None]:
    """Redirect mails to a server that permanently rejects every recipient."""
    original_port = urlsplit(site.stack.environment["PRESSROOM_MAIL_URL"]).port
    assert original_port is not None
    with running_scripted_server(
        ScriptedSmtpServer(answers={"RCPT": "550 5.1.1 There is no such mailbox"})
    ) as talker:
        site.proxies["mail"].redirect_to(talker.port)
        try:
            yield
        finally:
            site.proxies["mail"].redirect_to(original_port)


@contextmanager
def _receiver_down(site: Site) -> Iterator[None]:
    port = free_port()
    with site.client() as client:
        endpoint = new_endpoint(client, f"http://127.0.0.1:{port}/hook")
        announce_events(site.stack, site.owner)
        yield
        with running_receiver(port) as receiver:
            end_retry_pauses(site.stack, endpoint["id"])
            eventually(lambda: receiver.hooks, within=60, what="the delivery")
            _await_deliveries(site)
        client.delete(f"/webhook-endpoints/{endpoint['id']}")


@contextmanager
def _no_webhook_worker(site: Site) -> Iterator[None]:
    with site.client() as client, running_receiver() as receiver:
        endpoint = new_endpoint(client, receiver.url)
        with site.workers["request"].stopped():
            announce_events(site.stack, site.owner)
            yield
        eventually(lambda: receiver.hooks, within=60, what="the delivery")
        _await_deliveries(site)
        client.delete(f"/webhook-endpoints/{endpoint['id']}")


def _await_deliveries(site: Site) -> None:
    """Wait until no delivery is pending, because a worker records the end after the response."""
    pending = "SELECT 1 FROM webhook_deliveries WHERE status = 'pending'"
    eventually(lambda: not site.stack.query(pending), what="the end of the delivery")


@contextmanager
def _balance_falsified(site: Site) -> Iterator[None]:
    grant(site.stack, site.owner.user_id, "10")
    site.stack.query(CHANGE_BALANCE, 1, site.owner.user_id)
    try:
        run_maintenance(site.stack, "credits.verify")
        yield
    finally:
        site.stack.query(CHANGE_BALANCE, -1, site.owner.user_id)
        run_maintenance(site.stack, "credits.verify")


@contextmanager
def _wrong_amount_paid(site: Site) -> Iterator[None]:
    """Pay a wrong amount for an order. When the block ends, an operator credits the order."""
    with site.client() as client, closing(SandboxPayments(site.stack.sandbox_url)) as payments:
        order_id = topups.create_order(client)["order_id"]
        payments.alter(order_id, amount=499)
        payments.pay(order_id)
        yield
    run_json_command(site.stack, "credits", "orders", "review", str(order_id), "--credit")


TROUBLES = {
    "API away": Trouble("PressroomApiAway", begin=lambda site: site.api.stopped()),
    "Postgres gone": Trouble("PressroomDatabaseAway"),
    "Postgres hung": Trouble("PressroomDatabaseAway"),
    "Postgres slow": Trouble("PressroomStatementsSlow", calls=_read_balance),
    "connections left open": Trouble("PressroomConnectionsUsedUp", begin=_connections_left_open),
    "Redis gone": Trouble("PressroomRedisAway"),
    "Redis hung": Trouble("PressroomRedisAway"),
    "Redis's disk full": Trouble(
        "PressroomDiskFull",
        {"store": "redis"},
        begin=fault_at_proxy("redis", lambda proxy: proxy.answer(DISK_FULL_RESPONSE)),
    ),
    "Redis answering errors": Trouble(
        "PressroomRedisFails",
        begin=fault_at_proxy("redis", lambda proxy: proxy.answer(LOADING_RESPONSE)),
        calls=search_photos,
    ),
    "broker away": Trouble("PressroomBrokerAway", begin=FAULTS["Redis gone"]),
    "S3 refusing": Trouble("PressroomStorageAway"),
    "S3 hung": Trouble("PressroomStorageAway"),
    "S3 answering 503": Trouble(
        "PressroomStorageFails", calls=lambda _, client: send(client, prefer="wait=1")
    ),
    "table missing": Trouble(
        "PressroomServerErrors",
        begin=lambda site: _without_table(site, "segments"),
        calls=lambda site, client: client.get(f"/lists/{site.list_id}/segments"),
    ),
    "table locked": Trouble(
        "PressroomRequestsShed",
        begin=lambda site: uncommitted(site.stack, LOCK_TABLE),
        calls=_read_balance,
        callers=MANY_CALLERS,
    ),
    "Postgres very slow": Trouble("PressroomRequestsSlow", calls=_read_balance),
    "passwords guessed": Trouble("PressroomLoginsFail", begin=_password_guessed),
    "one list locked": Trouble("PressroomListBusy", calls=subscribe, callers=MANY_CALLERS),
    "no worker in a queue": Trouble(
        "PressroomQueueBehind", {"queue": "media"}, begin=_queue_without_worker
    ),
    "worker hung": Trouble(
        "PressroomQueueStalled", {"queue": "mail"}, begin=lambda site: site.workers["mail"].paused()
    ),
    "worker killed at work": Trouble(
        "PressroomLeasesLost", {"queue": "mail"}, begin=_worker_killed_at_work
    ),
    "table of mails missing": Trouble(
        "PressroomJobsFail",
        {"queue": "mail", "code": "job.internal_error"},
        begin=lambda site: _without_table(site, "mailed_links"),
        calls=subscribe,
    ),
    "job kills its process": Trouble(
        "PressroomJobsFail",
        {"queue": "media", "code": "job.worker_lost"},
        begin=_job_kills_its_process,
    ),
    "converters killed": Trouble(
        "PressroomConvertersKilled",
        begin=_converters_killed,
        calls=lambda _, client: send(client, prefer="wait=5"),
    ),
    "maintenance fails": Trouble(
        "PressroomMaintenanceFails", {"maintenance": "credits.verify"}, begin=_maintenance_fails
    ),
    "no worker of maintenance": Trouble(
        "PressroomMaintenanceLate",
        {"maintenance": "credits.verify"},
        begin=_maintenance_without_worker,
    ),
    "nothing purged": Trouble(
        "PressroomRowsOverdue", {"table": "idempotency_records"}, begin=_nothing_purged
    ),
    "backup fails": Trouble("PressroomBackupOverdue", begin=_backup_fails),
    "mail server refuses": Trouble("PressroomMailDeferred", calls=subscribe),
    "recipients unknown": Trouble(
        "PressroomMailRefused", begin=_recipients_unknown, calls=subscribe
    ),
    "photo provider gone": Trouble(
        "PressroomCircuitOpen", {"server": "photo provider"}, calls=search_photos
    ),
    "model hung": Trouble(
        "PressroomCircuitOpen",
        {"server": "language model"},
        calls=lambda _, client: client.post(
            METADATA, json=build_unique_post(), headers={"Prefer": "wait=30"}
        ),
        callers=MODEL_CALLERS,
    ),
    "photo provider limiting us": Trouble(
        "PressroomProviderLimited",
        {"provider": "photo provider"},
        begin=fault_at_proxy("photos", lambda proxy: proxy.answer(RATE_LIMITED_RESPONSE)),
        calls=search_photos,
    ),
    "photo quota nearly spent": Trouble(
        "PressroomPhotoQuotaLow",
        {"provider": "unsplash"},
        begin=fault_at_proxy("photos", lambda proxy: proxy.answer(LOW_QUOTA_RESPONSE)),
        calls=search_photos,
    ),
    "no worker of webhooks": Trouble("PressroomWebhooksLate", begin=_no_webhook_worker),
    "webhook receiver down": Trouble("PressroomWebhookReceiverDown", begin=_receiver_down),
    "balance falsified": Trouble("PressroomLedgerFaults", begin=_balance_falsified),
    "wrong amount paid": Trouble("PressroomOrdersInReview", begin=_wrong_amount_paid),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", TROUBLES if FULL else SHORT)
def test_fault_fires_its_alert_and_the_alert_clears_afterwards(
    watched_stack: Site, name: str
) -> None:
    trouble = TROUBLES[name]
    watched_stack.watch.await_silence(trouble.alert, trouble.labels)
    begin = trouble.begin or FAULTS[name]
    calls = [trouble.calls] * trouble.callers if trouble.calls else []
    with making_calls(watched_stack, calls, pause=PAUSE_SECONDS):
        with begin(watched_stack):
            watched_stack.watch.await_alert(trouble.alert, trouble.labels)
        watched_stack.watch.await_silence(trouble.alert, trouble.labels)


def test_every_alert_is_covered_by_a_fault() -> None:
    assert {each.alert for each in TROUBLES.values()} == alerts().keys()


def test_shortened_alert_rule_uses_the_same_metrics_in_less_time() -> None:
    rules = ALERTS.read_text()
    changed = [
        (before, after)
        for before, after in zip(
            rules.splitlines(), shorten_rule_times(rules).splitlines(), strict=True
        )
        if before != after
    ]
    assert changed
    for before, after in changed:
        names = [word for word in before.split() if "pressroom_" in word and "[" not in word]
        assert "for:" in before or "[" in before or all(name in after for name in names)
    assert "for: 10m" not in shorten_rule_times(rules)
    assert "> 7200" not in shorten_rule_times(rules)
