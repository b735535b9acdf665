"""Creates the processes, senders and members for the benchmarks of reports about mails.

A sender is a registered source of reports, such as a mail provider.
"""

import secrets
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import count

import psycopg2

from benchmarks.http_load import build_body_request
from benchmarks.own_stack import own_stack
from core import clock
from core.queues import Queue
from devstack.harness.polling import eventually
from devstack.harness.stack import Owner, Stack
from devstack.sandbox.senders.amazon_sns import SnsServer
from devstack.sandbox.senders.mail_events import MailEvent, ProviderName
from devstack.sandbox.senders.signed_requests import ProviderKeys, RequestPlan
from integrations.senders.port import SenderProvider
from services.senders import senders
from services.senders.senders import NewSender
from services.subscriptions import lists
from services.subscriptions.members.delivery_ids import build_delivery_id_factory

_INSERT_USERS = """
    INSERT INTO users (id, email)
    SELECT (random() * 9e15)::bigint, 'member' || n || '@list' || %s || '.example'
    FROM generate_series(1, %s) AS n
    RETURNING id
"""
_INSERT_SUBSCRIPTIONS = """
    INSERT INTO subscriptions (list_id, user_id, status, type, name, email, source)
    SELECT %s, id, 'active', 'free', 'A member', email, 'import'
    FROM users WHERE id = ANY (%s)
"""
_INSERT_MAILING = "INSERT INTO mailings (id, list_id, created_at, rows) VALUES (%s, %s, now(), %s)"
# Finds stored request bodies whose reports no worker has processed yet, and unfinished jobs of the
# kind ``opt_out.follow``. An ``opt_out.follow`` job ends the subscription of a member who
# complained or unsubscribed.
_UNFINISHED = """
    SELECT 1 FROM sender_bodies
    UNION ALL
    SELECT 1 FROM jobs WHERE kind = 'opt_out.follow' AND status IN ('queued', 'running')
    LIMIT 1
"""
_MAX_APPLYING_SECONDS = 300


@dataclass(frozen=True)
class BenchSender:
    """A sender, and the keys with which the benchmark signs requests as the provider does."""

    id: int
    plan: RequestPlan
    _keys: ProviderKeys = field(default_factory=lambda: ProviderKeys(SnsServer()))

    def build_post(self, events: Sequence[MailEvent]) -> bytes:
        """Return a signed HTTP request, which is accepted for at least five minutes."""
        [request] = self._keys.build_requests(self.plan, events)
        path = f"/senders/{self.id}/events"
        return build_body_request("POST", path, request.body, request.headers)


@dataclass(frozen=True)
class BenchMailing:
    """A mailing to all members of a list, with one delivery id per member."""

    id: int
    list_id: int
    delivery_ids: Sequence[str]


@dataclass
class ReportsBench:
    """A stack with one API process, and one worker process that processes reports."""

    stack: Stack
    owner: Owner
    generic: BenchSender
    postmark: BenchSender
    _mailing_ids: Iterator[int] = field(default_factory=lambda: count(1_000))

    @classmethod
    def create(cls, stack: Stack, owner: Owner) -> "ReportsBench":
        """Create the owner's senders on a stack whose processes are already running."""
        generic = create_sender(stack, owner, ProviderName.GENERIC)
        return cls(stack, owner, generic, create_sender(stack, owner, ProviderName.POSTMARK))

    def create_list(self, members: int) -> tuple[int, list[int]]:
        """Create a list with active members. Return the list's id and the members' user ids."""
        return create_member_list(self.stack, self.owner, members)

    def create_mailing(self, list_id: int, user_ids: Sequence[int]) -> BenchMailing:
        mailing_id = next(self._mailing_ids)
        self.stack.query(_INSERT_MAILING, mailing_id, list_id, len(user_ids))
        create_delivery_id = build_delivery_id_factory(
            self.stack.resources.keyring,
            list_id=list_id,
            mailing_id=mailing_id,
            day=clock.now().date(),
        )
        return BenchMailing(mailing_id, list_id, [*map(create_delivery_id, user_ids)])

    def await_effects(self) -> None:
        """Wait until the worker has processed all reports, and has updated mailings and members."""
        eventually(
            lambda: not self.stack.query(_UNFINISHED),
            within=_MAX_APPLYING_SECONDS,
            what="the last effect of the reports",
        )


@contextmanager
def reports_bench() -> Iterator[ReportsBench]:
    with own_stack("reports") as stack:
        stack.start_api(PRESSROOM_LOG_LEVEL="warning")
        stack.start_worker(Queue.MAINTENANCE, PRESSROOM_LOG_LEVEL="warning")
        yield ReportsBench.create(stack, stack.create_owner())


def create_member_list(stack: Stack, owner: Owner, members: int) -> tuple[int, list[int]]:
    """Create a list with active members. Return the list's id and the members' user ids."""
    with stack.resources.unit_of_work() as uow:
        slug = f"list-{secrets.token_hex(4)}"
        list_id = lists.create_list(uow, account_id=owner.account_id, title="A list", slug=slug).id
    user_ids = [int(str(row[0])) for row in stack.query(_INSERT_USERS, list_id, members)]
    stack.query(_INSERT_SUBSCRIPTIONS, list_id, user_ids)
    _vacuum(stack)
    return list_id, user_ids


def create_sender(
    stack: Stack, owner: Owner, provider: ProviderName, list_ids: list[int] | None = None
) -> BenchSender:
    new = NewSender(name="A sender", provider=SenderProvider(provider), list_ids=list_ids)
    with stack.resources.unit_of_work() as uow:
        sender, secret = senders.add_sender(
            uow, owner.account_id, new, key_id=None, detail="by a benchmark"
        )
        return BenchSender(sender.id, RequestPlan(provider, secret))


def _vacuum(stack: Stack) -> None:
    """Vacuum the new rows immediately, because autovacuum would wait for a few minutes."""
    with closing(psycopg2.connect(stack.owner_url)) as connection:
        connection.autocommit = True
        with connection.cursor() as sql:
            sql.execute("VACUUM ANALYZE users")
            sql.execute("VACUUM ANALYZE subscriptions")
