"""Defines the parts of the load that the benchmark ``everything`` puts on one stack.

Each part of the load sends one kind of request, such as uploads, and has an owner account of its
own.

The requests are sent at fixed times, even if the API is slow. If the benchmark sends only one kind
of request, the stack keeps two cores busy for about a tenth of the time. If the benchmark sends all
kinds of requests, the stack keeps two cores busy for about three quarters of the time. For each
kind of request, the stack has a maximum rate, which is measured without other requests. If the
benchmark sent every kind of request at half of its maximum rate, the stack would need more than six
cores. On only two cores, this load would make the queues of jobs grow until the benchmark ends, so
the response times would depend only on the duration of the benchmark. The result ``busy CPU time``
shows how busy the cores were. Most request rates are prime numbers, so that requests of different
kinds rarely arrive at the same time.
"""

import itertools
import json
import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from decimal import Decimal
from urllib.parse import urlencode

import psycopg2

from benchmarks.http_load import build_body_request, build_json_request, build_request
from benchmarks.large_list import create_large_list
from benchmarks.reports_stack import BenchMailing, ReportsBench, create_member_list
from benchmarks.upload import create_photo
from core.scopes import USER_SCOPES
from devstack.harness.polling import eventually
from devstack.harness.stack import Owner, Stack
from devstack.sandbox.senders.mail_events import EventKind, MailEvent
from services.access.caller import Caller
from services.credits import ledger
from services.feed.catalogue import FeedEventType
from services.subscriptions import lists
from services.webhooks import webhook_endpoints

# The rates are in requests per second.
# The capacity of one API process is 1,150 charges per second.
CHARGES_PER_SECOND = 79.0
CHARGED_ACCOUNTS = 50
# The capacity of two media processes is 2.5 photographs of 12 megapixels per second.
UPLOADS_PER_SECOND = 0.25
# Each sign-up also sends a confirmation mail.
SIGN_UPS_PER_SECOND = 5.0
# The capacity of one bulk process is 20,000 rows per second.
IMPORTS_PER_SECOND = 0.15
ROWS_PER_IMPORT = 10_000
# The API waits for the end of an import, so that the response time is the import's duration.
MAX_IMPORT_SECONDS = 60
# Searches on a list with a million members.
SEARCHES_PER_SECOND = 7.0
# Each change of a member causes one webhook.
CHANGES_PER_SECOND = 11.0
CHANGED_MEMBERS = 1_000
# The capacity of one API process is 470 requests per second, each with a single report.
REPORTS_PER_SECOND = 37.0
# Every tenth report is about a soft bounce, and all others are about delivered mails. The benchmark
# measures the processing delay of the bounces only, because Pressroom stores no time for a
# delivered mail, but only increases a counter.
REPORTS_PER_BOUNCE = 10
MAX_EFFECT_SECONDS = 300

_CHARGE = b'{"amount_credit": 0.0001, "source_id": "post-1", "meta": {"words": 12}}'
_BOUNDARY = "everything-benchmark"
_PHOTO_HEAD = (
    f"--{_BOUNDARY}\r\n"
    'Content-Disposition: form-data; name="file"; filename="photo.jpg"\r\n'
    "Content-Type: image/jpeg\r\n\r\n"
).encode()
_PHOTO_TAIL = f"\r\n--{_BOUNDARY}--\r\n".encode()
# The filters of the searches: an indexed tag, a rare field value, and a part of a name or address.
_FILTERS = (
    {"field": "tag", "is": "common"},
    {"field": "fields.city", "is": "utqiagvik"},
    {"field": "name", "contains": "xyz"},
    {"field": "email", "contains": "adams12345"},
)
_DELIVERY_DELAYS = """
    SELECT extract(epoch FROM d.delivered_at - e.occurred_at)::float
    FROM webhook_deliveries AS d JOIN feed_events AS e ON e.id = d.event_id
    WHERE d.endpoint_id = %s AND d.status = 'delivered'
    ORDER BY d.id
"""
_DELIVERY_ATTEMPTS = "SELECT sum(attempts) FROM webhook_deliveries WHERE endpoint_id = %s"
_REPORT_DELAYS = """
    SELECT extract(epoch FROM b.created_at - r.received_at)::float
    FROM bounces AS b JOIN sender_reports AS r USING (mailing_id, user_id)
    WHERE b.mailing_id = %s
    ORDER BY r.id
"""
_DELIVERED_REPORTS = "SELECT delivered FROM mailings WHERE id = %s"

# Maps the name of a delay, such as ``webhook delay``, to the measured delays in seconds, in the
# order of the requests.
Delays = dict[str, list[float]]


@dataclass
class Part(ABC):
    """A kind of request that the benchmark sends at a fixed rate.

    Attributes:
        name: the name of the part in the results.
    """

    stack: Stack
    owner: Owner
    name: str
    per_second: float

    @abstractmethod
    def build_requests(self, number: int) -> Iterator[bytes]:
        """Yield ``number`` HTTP requests."""

    def await_effects(self, accepted: int) -> Delays:
        """Wait until the accepted requests have taken effect, and return the measured delays.

        Args:
            accepted: the number of requests since the previous call that the API accepted.
        """
        return {}


@dataclass
class Charges(Part):
    """Charges of several accounts in turn."""

    keys: Sequence[str]

    def build_requests(self, number: int) -> Iterator[bytes]:
        path = "/auxilia/credits/consume"
        requests = [build_json_request("POST", path, key, _CHARGE) for key in self.keys]
        return itertools.islice(itertools.cycle(requests), number)


@dataclass
class Uploads(Part):
    """Uploads of a photograph with 12 megapixels. The API responds after converting the photo."""

    photo: bytes = field(default_factory=create_photo)

    def build_requests(self, number: int) -> Iterator[bytes]:
        headers = {
            "Content-Type": f"multipart/form-data; boundary={_BOUNDARY}",
            "Authorization": f"Bearer {self.owner.key}",
        }
        for _ in range(number):
            # Append random bytes, so that each uploaded file is different.
            body = b"".join((_PHOTO_HEAD, self.photo, secrets.token_bytes(8), _PHOTO_TAIL))
            yield build_body_request("POST", "/attachments", body, headers)


@dataclass
class SignUps(Part):
    """Sign-ups of new people to a list with double opt-in."""

    list_id: int
    signed_up: int = 0

    def build_requests(self, number: int) -> Iterator[bytes]:
        for _ in range(number):
            body = json.dumps({"email": f"{secrets.token_hex(8)}@example.com"}).encode()
            headers = {"Content-Type": "application/json"}
            yield build_body_request("POST", f"/subscriptions/{self.list_id}", body, headers)

    def await_effects(self, accepted: int) -> Delays:
        self.signed_up += accepted
        _check_members(self.stack, self.list_id, self.signed_up)
        return {}


@dataclass
class Imports(Part):
    """Imports of CSV files with new people."""

    list_id: int
    imported: int = 0

    def build_requests(self, number: int) -> Iterator[bytes]:
        path = f"/lists/{self.list_id}/imports?filename=members.csv"
        headers = {
            "Content-Type": "application/octet-stream",
            "Prefer": f"wait={MAX_IMPORT_SECONDS}",
            "Authorization": f"Bearer {self.owner.key}",
        }
        for _ in range(number):
            tag = secrets.token_hex(4)
            rows = "".join(f"{row}.{tag}@example.com\n" for row in range(ROWS_PER_IMPORT))
            yield build_body_request("POST", path, f"email\n{rows}".encode(), headers)

    def await_effects(self, accepted: int) -> Delays:
        self.imported += accepted * ROWS_PER_IMPORT
        _check_members(self.stack, self.list_id, self.imported)
        return {}


@dataclass
class Searches(Part):
    """Searches for members of a large list, with several filters in turn."""

    list_id: int

    def build_requests(self, number: int) -> Iterator[bytes]:
        path = f"/lists/{self.list_id}/subscriptions"
        requests = [
            build_request(
                "GET", f"{path}?{urlencode({'filter': json.dumps(each)})}", self.owner.key
            )
            for each in _FILTERS
        ]
        return itertools.islice(itertools.cycle(requests), number)


@dataclass
class Changes(Part):
    """Changes to the names of members. Each change of a name causes one webhook."""

    list_id: int
    user_ids: Sequence[int]
    endpoint_id: int
    delivered: int = 0

    def build_requests(self, number: int) -> Iterator[bytes]:
        for user_id in itertools.islice(itertools.cycle(self.user_ids), number):
            path = f"/lists/{self.list_id}/members/{user_id}"
            body = json.dumps({"name": secrets.token_hex(8)}).encode()
            yield build_json_request("PATCH", path, self.owner.key, body)

    def await_effects(self, accepted: int) -> Delays:
        total = self.delivered + accepted

        def read_all_delays() -> list[float] | None:
            rows = self.stack.query(_DELIVERY_DELAYS, self.endpoint_id)
            return _read_floats(rows) if len(rows) >= total else None

        delays = eventually(
            read_all_delays, within=MAX_EFFECT_SECONDS, what="the delivery of the last webhook"
        )
        [(attempts,)] = self.stack.query(_DELIVERY_ATTEMPTS, self.endpoint_id)
        assert len(delays) == attempts == total, "a webhook was repeated"
        self.delivered, first_new = total, self.delivered
        return {"webhook delay": delays[first_new:]}


@dataclass
class Reports(Part):
    """Signed requests, each with a report about the mail to a different recipient of a mailing."""

    bench: ReportsBench
    list_id: int
    user_ids: Sequence[int]
    mailing: BenchMailing | None = None

    def build_requests(self, number: int) -> Iterator[bytes]:
        self.mailing = self.bench.create_mailing(self.list_id, self.user_ids[:number])
        for place, delivery_id in enumerate(self.mailing.delivery_ids):
            kind = EventKind.DELIVERED if place % REPORTS_PER_BOUNCE else EventKind.SOFT_BOUNCE
            yield self.bench.generic.build_post([MailEvent(kind=kind, delivery_id=delivery_id)])

    def await_effects(self, accepted: int) -> Delays:
        assert self.mailing is not None
        self.bench.await_effects()
        delays = _read_floats(self.stack.query(_REPORT_DELAYS, self.mailing.id))
        [(delivered,)] = self.stack.query(_DELIVERED_REPORTS, self.mailing.id)
        assert isinstance(delivered, int)
        assert delivered + len(delays) == accepted, "a report is missing or was applied twice"
        return {"report delay": delays}


def create_parts(stack: Stack, webhook_url: str, most_seconds: float) -> list[Part]:
    """Create one ``Part`` per kind of request, with the owner, lists and accounts that it needs.

    Args:
        most_seconds: the maximum duration for which a part of the load sends requests.
    """
    return [
        _create_charges(stack),
        Uploads(stack, stack.create_owner(), "uploads", UPLOADS_PER_SECOND),
        _create_sign_ups(stack),
        _create_imports(stack),
        _create_searches(stack),
        _create_changes(stack, webhook_url),
        _create_reports(stack, most_seconds),
    ]


def _create_charges(stack: Stack) -> Charges:
    owners = [stack.create_owner() for _ in range(CHARGED_ACCOUNTS)]
    for owner in owners:
        ledger.grant_credits(
            stack.resources.database, owner.account_id, Decimal(1_000_000), source_id="benchmark"
        )
    keys = [owner.key for owner in owners]
    return Charges(stack, owners[0], "charges", CHARGES_PER_SECOND, keys)


def _create_sign_ups(stack: Stack) -> SignUps:
    owner = stack.create_owner()
    list_id = _create_empty_list(stack, owner, confirm_required=True)
    return SignUps(stack, owner, "sign-ups", SIGN_UPS_PER_SECOND, list_id)


def _create_imports(stack: Stack) -> Imports:
    owner = stack.create_owner()
    list_id = _create_empty_list(stack, owner, confirm_required=False)
    return Imports(stack, owner, "imports", IMPORTS_PER_SECOND, list_id)


def _create_searches(stack: Stack) -> Searches:
    owner = stack.create_owner()
    with closing(psycopg2.connect(stack.owner_url)) as connection:
        connection.autocommit = True
        list_id, _ = create_large_list(stack, owner, connection)
    return Searches(stack, owner, "searches", SEARCHES_PER_SECOND, list_id)


def _create_changes(stack: Stack, webhook_url: str) -> Changes:
    owner = stack.create_owner()
    list_id, user_ids = create_member_list(stack, owner, CHANGED_MEMBERS)
    caller = Caller(owner.account_id, owner.person_id, USER_SCOPES, unrestricted=True)
    with stack.resources.unit_of_work() as uow:
        endpoint, _ = webhook_endpoints.create_endpoint(
            uow,
            caller,
            url=webhook_url,
            types=[FeedEventType.SUBSCRIPTION_CHANGED],
            list_id=list_id,
        )
        endpoint_id = endpoint.id
    name = "member changes"
    return Changes(stack, owner, name, CHANGES_PER_SECOND, list_id, user_ids, endpoint_id)


def _create_reports(stack: Stack, most_seconds: float) -> Reports:
    owner = stack.create_owner()
    bench = ReportsBench.create(stack, owner)
    list_id, user_ids = bench.create_list(round(REPORTS_PER_SECOND * most_seconds))
    return Reports(stack, owner, "reports", REPORTS_PER_SECOND, bench, list_id, user_ids)


def _create_empty_list(stack: Stack, owner: Owner, *, confirm_required: bool) -> int:
    with stack.resources.unit_of_work() as uow:
        return lists.create_list(
            uow,
            account_id=owner.account_id,
            title="A list",
            slug=f"list-{owner.user_id}",
            fields={"confirm_required": confirm_required},
        ).id


def _check_members(stack: Stack, list_id: int, expected: int) -> None:
    [(members,)] = stack.query("SELECT count(*) FROM subscriptions WHERE list_id = %s", list_id)
    assert members == expected, f"{members} members instead of {expected}"


def _read_floats(rows: Sequence[tuple[object, ...]]) -> list[float]:
    return [float(str(value)) for (value,) in rows]
