from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import httpx2
import pytest

from core.scopes import Scope
from devstack import LOOPBACK
from devstack.harness.stack import Owner, Stack
from tests.support.composer.composer_stack import CALL_PRICE, ComposerStack
from tests.support.credits.payments import SandboxPayments
from tests.support.http.replies import data, send
from tests.support.http.webhook_receiver import HookReceiver, running_receiver
from tests.support.images.pictures import photo
from tests.support.lists.bounces import backdate_history
from tests.support.lists.measured_lists import MeasuredList, new_measured_list
from tests.support.lists.people_on_lists import Subscriber, subscribe
from tests.support.lists.segments import VIP
from tests.support.lists.subscribers import Reader, new_list, new_reader
from tests.support.lists.watched_segments import Watch, WatchedSegment, watch_segment
from tests.support.people.consoles import OwnerAtConsole, at_console
from tests.support.people.oauth import Person, log_in
from tests.support.senders.own_senders import new_sender
from tests.support.stack.without_workers import CDN, CONTACTS, DOCS_URL, KEY_HEADER, POLICY


@pytest.fixture(scope="session")
def stack_without_workers(make_lasting_stack: Callable[[str], Stack]) -> Stack:
    """A test stack without workers, so that every job stays queued."""
    stack = make_lasting_stack("without-workers")
    stack.start_api(
        PRESSROOM_API_KEY_HEADER=KEY_HEADER,
        PRESSROOM_MEDIA_BASE_URL=CDN,
        PRESSROOM_SECURITY_CONTACTS=", ".join(CONTACTS),
        PRESSROOM_SECURITY_POLICY=POLICY,
        PRESSROOM_DOCS_URL=DOCS_URL,
    )
    return stack


@pytest.fixture
def owner_without_workers(stack_without_workers: Stack) -> Owner:
    return stack_without_workers.create_owner()


@pytest.fixture
def client_without_workers(
    stack_without_workers: Stack, owner_without_workers: Owner
) -> Iterator[httpx2.Client]:
    with stack_without_workers.client(owner_without_workers.key) as client:
        yield client


@pytest.fixture(scope="session")
def disconnected_api(stack_without_workers: Stack) -> Iterator[httpx2.Client]:
    """A client of an API process that can't reach the database, Redis or the object storage."""
    closed_port = f"{LOOPBACK}:9"
    settings = {
        "PRESSROOM_DATABASE_URL": f"postgresql://nobody:secret-word@{closed_port}/none",
        "PRESSROOM_REDIS_URL": f"redis://:secret-word@{closed_port}/0",
        "PRESSROOM_S3_ENDPOINT": f"http://{closed_port}",
    }
    with stack_without_workers.run_second_api(**settings) as api, api.client() as client:
        yield client


@pytest.fixture
def console(stack: Stack) -> Iterator[OwnerAtConsole]:
    with at_console(stack) as owner:
        yield owner


@pytest.fixture(scope="module")
def shared_console(stack: Stack) -> Iterator[OwnerAtConsole]:
    with at_console(stack) as owner:
        yield owner


@pytest.fixture
def receiver() -> Iterator[HookReceiver]:
    with running_receiver() as server:
        yield server


@pytest.fixture
def other_owner(stack: Stack) -> Iterator[httpx2.Client]:
    with stack.client(stack.create_owner().key) as client:
        yield client


@pytest.fixture
def mailing_list(client: httpx2.Client) -> dict[str, Any]:
    return new_list(client)


@pytest.fixture
def list_id(mailing_list: dict[str, Any]) -> int:
    return int(mailing_list["id"])


@pytest.fixture
def watch(stack: Stack, client: httpx2.Client, list_id: int) -> Watch:
    """A function that creates a segment, watches it, and compares it for the first time."""

    def create(written: Any = VIP, **settings: Any) -> WatchedSegment:
        return watch_segment(stack, client, list_id, written, **settings)

    return create


@pytest.fixture
def encrypted_attachment(client: httpx2.Client) -> dict[str, Any]:
    return dict(data(send(client, photo(), "p.jpg", encrypted="true")))


@pytest.fixture
def reader(stack: Stack) -> Iterator[Reader]:
    with new_reader(stack) as reader:
        yield reader


@pytest.fixture
def make_reader(stack: Stack) -> Iterator[Callable[[], Reader]]:
    """A function that creates a person who can log in and has no subscriptions."""
    with ExitStack() as exit_stack:
        yield lambda: exit_stack.enter_context(new_reader(stack))


@pytest.fixture
def member(stack: Stack, reader: Reader, list_id: int) -> Reader:
    reader.joins(list_id)
    backdate_history(stack, reader)
    return reader


@pytest.fixture
def logged_in_owner(stack: Stack, owner: Owner) -> Iterator[Person]:
    """A browser in which `owner` is logged in and can grant OAuth clients access."""
    person = log_in(stack, owner)
    yield person
    person.browser.close()


@pytest.fixture
def read_only_client(stack: Stack, owner: Owner) -> Iterator[httpx2.Client]:
    with stack.client(stack.create_key(owner.user_id, Scope.SUBSCRIPTION_READ)) as client:
        yield client


@pytest.fixture
def delivery_client(stack: Stack) -> Iterator[httpx2.Client]:
    """An API client of the newsletter sender, with a key that only the operator can create."""
    key = stack.create_key(stack.create_owner().user_id, Scope.DELIVERY)
    with stack.client(key) as client:
        yield client


@pytest.fixture
def sender(client: httpx2.Client) -> dict[str, Any]:
    """A sender that covers all lists of the fixture `owner`."""
    return new_sender(client)


@pytest.fixture(scope="module")
def priced_composer(
    request: pytest.FixtureRequest, make_stack: Callable[[str], Stack]
) -> ComposerStack:
    """A test stack on which every composer call that the language model answers costs credits."""
    name = request.path.stem.removeprefix("test_").replace("_", "-")
    composer = ComposerStack(make_stack, name, PRESSROOM_COMPOSER_PRICE=str(CALL_PRICE))
    composer.work("offline")
    return composer


@pytest.fixture
def sandbox_payments(stack: Stack) -> Iterator[SandboxPayments]:
    """The simulated payment provider. Faults that a test injects are removed when the test ends."""
    payments = SandboxPayments(stack.sandbox_url)
    yield payments
    payments.mode()
    payments.stop_failures()
    payments.close()


@pytest.fixture
def subscriber(stack: Stack, client: httpx2.Client) -> Subscriber:
    """A person who has subscribed to a new mailing list of the fixture `owner`."""
    return subscribe(stack, new_list(client, title="The Morning Letter")["id"])


@pytest.fixture
def measured(stack: Stack, client: httpx2.Client) -> MeasuredList:
    """A list in the mode `all`."""
    return new_measured_list(stack, client)


@pytest.fixture
def asking(stack: Stack, client: httpx2.Client) -> MeasuredList:
    """A list in the mode `consent`."""
    return new_measured_list(stack, client, "consent")
