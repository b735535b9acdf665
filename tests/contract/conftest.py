from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import httpx2
import pytest

from core.scopes import Scope
from devstack import LOOPBACK
from devstack.harness.stack import Owner, Stack
from tests.support.credits.payments import SandboxPayments
from tests.support.http.webhook_receiver import HookReceiver, hooked
from tests.support.lists.subscribers import Reader, a_reader, new_list
from tests.support.people.consoles import OwnerAtConsole, at_console

KEY_HEADER = "X-Newsroom-Key"
CDN = "https://cdn.example.com"
CONTACTS = ("mailto:security@news.example", "https://news.example/report")
POLICY = "https://news.example/security"


@pytest.fixture(scope="session")
def quiet(make_lasting_stack: Callable[[str], Stack]) -> Stack:
    """A stack without workers, where every job stays queued; some settings are its own."""
    stack = make_lasting_stack("quiet")
    stack.start_api(
        PRESSROOM_API_KEY_HEADER=KEY_HEADER,
        PRESSROOM_MEDIA_BASE_URL=CDN,
        PRESSROOM_SECURITY_CONTACTS=", ".join(CONTACTS),
        PRESSROOM_SECURITY_POLICY=POLICY,
    )
    return stack


@pytest.fixture
def quiet_owner(quiet: Stack) -> Owner:
    return quiet.new_owner()


@pytest.fixture
def quiet_client(quiet: Stack, quiet_owner: Owner) -> Iterator[httpx2.Client]:
    with quiet.client(quiet_owner.key) as client:
        yield client


@pytest.fixture(scope="session")
def cut_off(quiet: Stack) -> Iterator[httpx2.Client]:
    """Calls an API process that reaches none of the services it depends on."""
    nobody = f"{LOOPBACK}:9"
    settings = {
        "PRESSROOM_DATABASE_URL": f"postgresql://nobody:secret-word@{nobody}/none",
        "PRESSROOM_REDIS_URL": f"redis://:secret-word@{nobody}/0",
        "PRESSROOM_S3_ENDPOINT": f"http://{nobody}",
    }
    with quiet.second_api(**settings) as api, api.client() as client:
        yield client


@pytest.fixture
def console(stack: Stack) -> Iterator[OwnerAtConsole]:
    """A new owner in the console, and what calls the API as them."""
    with at_console(stack) as found:
        yield found


@pytest.fixture
def receiver() -> Iterator[HookReceiver]:
    """A server to which webhooks are sent."""
    with hooked() as found:
        yield found


@pytest.fixture
def neighbour(stack: Stack) -> Iterator[httpx2.Client]:
    """Calls the API as another owner than `client`."""
    with stack.client(stack.new_owner().key) as client:
        yield client


@pytest.fixture
def letter(client: httpx2.Client) -> dict[str, Any]:
    """A new list of `client`'s."""
    return new_list(client)


@pytest.fixture
def list_id(letter: dict[str, Any]) -> int:
    return int(letter["id"])


@pytest.fixture
def reader(stack: Stack) -> Iterator[Reader]:
    """A person with a login, on no list yet."""
    with a_reader(stack) as reader:
        yield reader


@pytest.fixture
def make_reader(stack: Stack) -> Iterator[Callable[[], Reader]]:
    with ExitStack() as opened:
        yield lambda: opened.enter_context(a_reader(stack))


@pytest.fixture
def read_only(stack: Stack, owner: Owner) -> Iterator[httpx2.Client]:
    """Calls as `owner` with a key that may read lists."""
    with stack.client(stack.new_key(owner.user_id, Scope.SUBSCRIPTION_READ)) as client:
        yield client


@pytest.fixture
def sender(stack: Stack) -> Iterator[httpx2.Client]:
    """Calls with a key that the operator made for who sends the mail, and that owns no list."""
    key = stack.new_key(stack.new_owner().user_id, Scope.DELIVERY)
    with stack.client(key) as client:
        yield client


@pytest.fixture
def sandbox(stack: Stack) -> Iterator[SandboxPayments]:
    """The shared stack's payment provider, as it was found afterwards."""
    running = SandboxPayments(stack.sandbox_url)
    yield running
    running.mode()
    running.no_trouble()
    running.close()
