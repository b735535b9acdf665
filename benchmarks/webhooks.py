"""Compares how fast Pressroom and a plain HTTP client deliver the same backlog of webhook events.

The benchmark uses eight owners with one endpoint each, because Pressroom calls only two endpoints
of an owner at a time. The benchmark pauses all endpoints while it creates events. After all events
have been created, the endpoints resume together, as after an outage of a receiver. A single
Pressroom worker process delivers the webhook events. The receiver measures the time between the
first and the last webhook.

The baseline is one process that sends the same requests as Pressroom, but uses no database. The
baseline uses Pressroom's signing function, the asynchronous client of httpx2, and one open
connection per endpoint. Each round checks that the receiver got each event exactly once and
unchanged.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import httpx2

from benchmarks.hook_receiver import Taken, calculate_checksum
from benchmarks.measure import Finding, alternate, is_full_size, median_and_spread
from benchmarks.own_stack import own_stack
from core import clock
from core.queues import Queue
from core.scopes import Scope
from devstack import LOOPBACK
from devstack.harness.free_ports import free_port
from devstack.harness.polling import eventually
from devstack.harness.stack import Stack, plain_client
from devstack.supervisor.programs import is_responding
from models import EndpointState, Subscription
from services.access.caller import Caller
from services.feed import reading
from services.feed.catalogue import FeedEventType
from services.feed.reading import FeedPosition, newest_position
from services.subscriptions import lists, sign_up
from services.subscriptions.members.changes import Actor, ActorKind, Via, announce_change
from services.webhooks import signing, webhook_endpoints
from services.webhooks.webhook_endpoints import EndpointChange
from workers.serving import plan_serving

ENDPOINTS = 8
EVENTS_EACH = 300 if is_full_size() else 100
MEMBERS = 20
_STRANGER = Actor(ActorKind.STRANGER, Via.CHALLENGE)
MIN_SPEEDUP = 0.5
CHANGED = FeedEventType.SUBSCRIPTION_CHANGED
QUEUE_LIMIT = plan_serving([Queue.WEBHOOKS]).limits[Queue.WEBHOOKS]
_OWNER = Actor(ActorKind.OWNER, Via.LOGIN)
_UNFINISHED = """
    SELECT 1 FROM webhook_deliveries WHERE status = 'pending'
    UNION ALL SELECT 1 FROM jobs WHERE queue = 'webhooks' AND status IN ('queued', 'running')
"""

# The message id and the body of a webhook.
Post = tuple[str, bytes]


@dataclass(frozen=True)
class Hooked:
    """An owner with a list, and a webhook endpoint for events of the list."""

    caller: Caller
    list_id: int
    endpoint_id: int
    url: str
    key: bytes


@dataclass
class WebhookBench:
    stack: Stack
    hooked: Sequence[Hooked]
    receiver_port: int
    # The webhooks that wait for delivery: one list of webhooks per endpoint.
    posts: list[list[Post]]

    def create_backlog(self) -> None:
        """Pause the webhook endpoints, and record events about changed members."""
        self._set_state(EndpointState.PAUSED)
        with self.stack.resources.unit_of_work() as uow:
            before = newest_position(uow.session)
        for each in self.hooked:
            with self.stack.resources.unit_of_work() as uow:
                query = uow.session.query(Subscription).filter_by(list_id=each.list_id)
                members = query.order_by(Subscription.id).all()
                for number in range(EVENTS_EACH):
                    member = members[number % len(members)]
                    announce_change(uow, member, CHANGED, "edited", _OWNER, changed=["name"])
        self.posts = [self._read_posts(each, before) for each in self.hooked]

    def deliver(self) -> float:
        """Deliver a backlog of events with Pressroom, and return the deliveries per second."""
        self.create_backlog()
        self._reset_tally()
        self._set_state(EndpointState.ACTIVE)
        tally = self._await_all()
        eventually(lambda: not self.stack.query(_UNFINISHED), what="the end of all jobs")
        return (tally.events - 1) / tally.seconds

    def post(self) -> float:
        """Send the latest webhooks with a plain HTTP client, and return the requests per second."""
        self._reset_tally()
        asyncio.run(self._post_all())
        tally = self._await_all()
        return (tally.events - 1) / tally.seconds

    def _read_posts(self, hooked: Hooked, after: FeedPosition) -> list[Post]:
        with self.stack.resources.unit_of_work() as uow:
            query = reading.next_events(
                hooked.caller.account_id, after, types=[CHANGED], limit=EVENTS_EACH
            )
            events = uow.session.scalars(query).all()
            assert len(events) == EVENTS_EACH
            return [
                (signing.build_message_id(event["id"]), signing.serialise_event(event))
                for event in reading.render_events(uow.session, events)
            ]

    async def _post_all(self) -> None:
        limits = httpx2.Limits(max_connections=QUEUE_LIMIT)
        async with httpx2.AsyncClient(limits=limits, trust_env=False) as client:
            shares = zip(self.hooked, self.posts, strict=True)
            await asyncio.gather(*(_post_each(client, each, posts) for each, posts in shares))

    def _set_state(self, state: EndpointState) -> None:
        """Pause or resume all webhook endpoints in one transaction."""
        change = EndpointChange(state=state)
        with self.stack.resources.unit_of_work() as uow:
            for each in self.hooked:
                webhook_endpoints.change_endpoint(uow, each.caller, each.endpoint_id, change)

    def _reset_tally(self) -> None:
        with plain_client() as client:
            client.delete(self._taken_url).raise_for_status()

    def _await_all(self) -> Taken:
        expected = sum(map(len, self.posts))
        with plain_client() as client:

            def read_complete_tally() -> Taken | None:
                tally = Taken(**client.get(self._taken_url).json())
                return tally if tally.posts >= expected else None

            tally = eventually(read_complete_tally, within=300, what="the last event")
        assert isinstance(tally, Taken)
        assert tally.posts == tally.events == expected, tally
        bodies = (body for posts in self.posts for _, body in posts)
        assert tally.checksum == calculate_checksum(bodies), "other bytes came"
        return tally

    @property
    def _taken_url(self) -> str:
        return f"http://{LOOPBACK}:{self.receiver_port}/taken"


async def _post_each(client: httpx2.AsyncClient, hooked: Hooked, posts: Sequence[Post]) -> None:
    for message_id, body in posts:
        headers = signing.sign_message([hooked.key], message_id, clock.now(), body)
        headers |= {"Content-Type": "application/json", "User-Agent": "Pressroom-Webhooks/1"}
        reply = await client.post(hooked.url, content=body, headers=headers)
        assert reply.status_code == 200


def run() -> list[Finding]:
    with _webhook_bench() as bench:
        pairs = alternate(bench.deliver, bench.post)
    ratio, spread = median_and_spread(
        [product_rate / baseline_rate for product_rate, baseline_rate in pairs]
    )
    details = {
        "product_per_s": round(median_and_spread([product_rate for product_rate, _ in pairs])[0]),
        "posts_per_s": round(median_and_spread([baseline_rate for _, baseline_rate in pairs])[0]),
        "endpoints": ENDPOINTS,
        "events_each": EVENTS_EACH,
    }
    title, bar = f"webhooks: backlog of {ENDPOINTS} endpoints", f"≥ {MIN_SPEEDUP:g} ×"
    return [Finding(title, ratio, "×", bar, ratio >= MIN_SPEEDUP, spread, details)]


@contextmanager
def _webhook_bench() -> Iterator[WebhookBench]:
    with own_stack("webhooks") as stack:
        port = free_port()
        stack.start(
            "receiver",
            str(port),
            module="benchmarks.hook_receiver",
            ready=lambda: is_responding(port, "/taken"),
        )
        stack.start_worker("webhooks", concurrency=QUEUE_LIMIT, PRESSROOM_LOG_LEVEL="warning")
        hooked = [
            _create_hooked(stack, f"http://{LOOPBACK}:{port}/hooks/{number}")
            for number in range(ENDPOINTS)
        ]
        yield WebhookBench(stack, hooked, port, [])


def _create_hooked(stack: Stack, url: str) -> Hooked:
    owner = stack.create_owner()
    caller = Caller(owner.account_id, owner.person_id, frozenset(Scope), unrestricted=True)
    with stack.resources.unit_of_work() as uow:
        slug = f"list-{owner.user_id}"
        list_id = lists.create_list(
            uow,
            account_id=owner.account_id,
            title="A list",
            slug=slug,
            fields={"confirm_required": False},
        ).id
    for number in range(MEMBERS):
        with stack.resources.unit_of_work() as uow:
            mailing_list = lists.get_list(uow, list_id)
            address = f"member{number}.{owner.user_id}@example.com"
            sign_up.request_subscription(uow, mailing_list, address, _STRANGER)
    with stack.resources.unit_of_work() as uow:
        endpoint, _ = webhook_endpoints.create_endpoint(
            uow, caller, url=url, types=[CHANGED], list_id=None
        )
        [key] = signing.load_live_secrets(uow, endpoint.id)
        return Hooked(caller, list_id, endpoint.id, url, key)
