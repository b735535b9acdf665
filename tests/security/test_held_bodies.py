"""Tests that the unfinished request bodies of one caller don't block other callers.

The API runs with the limits of a real deployment, behind a trusted proxy.
"""

import re
import select
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from api.app import create_app
from api.auth.requirements import (
    MAX_UNCHECKED_BODY_BYTES,
    Access,
    PageAccess,
    PublicAccess,
    TraceAccess,
)
from api.limits.body_budgets import (
    HOLDER_FRACTION,
    MAX_HELD_LARGE_BODY_BYTES,
    MAX_HELD_SMALL_BODY_BYTES,
    MAX_SMALL_BODY_BYTES,
    MAX_UNFINISHED_BODIES,
)
from api.limits.rate_limits import RateLimitName
from api.openapi.document import find_access, list_api_routes
from core.settings import Settings
from devstack import LOOPBACK
from devstack.harness.polling import eventually
from devstack.harness.stack import Owner, Stack, plain_client
from services.access import sessions
from services.accounts import accounts
from tests.support.credits.credits import grant
from tests.support.images.pictures import photo
from tests.support.people.visiting import PASSWORD, SESSION_COOKIE, Visitor
from tests.support.people.visiting import new_address as new_email
from tests.support.security.attackers import Attacker, new_address, read_answer, running_attacker

MEGABYTE = 1024 * 1024
LARGE_SHARE = MAX_HELD_LARGE_BODY_BYTES // HOLDER_FRACTION
SMALL_SHARE = MAX_HELD_SMALL_BODY_BYTES // HOLDER_FRACTION
MAX_LOGINS_PER_DAY = 20
MAX_ANONYMOUS_CALLS_PER_DAY = 200
ADD_MEMBERS = "POST /auxilia/subscriptions/1/members/add"
CONSUME = "POST /auxilia/credits/consume"


def read_first_answer(connections: list[socket.socket]) -> tuple[int, str]:
    """Wait for the first response on any connection, and return its status and error code."""
    [answered, *_], _, _ = select.select(connections, [], [], 30)
    return read_answer(answered)


@pytest.fixture(scope="module")
def proxied_port(stack: Stack) -> Iterator[int]:
    """The port of an API that has low rate limits and trusts the header X-Forwarded-For."""
    with stack.run_second_api(
        PRESSROOM_TRUSTED_PROXIES=LOOPBACK,
        PRESSROOM_RATE_LIMIT_DEFAULT="30000/minute",
        # The rate limits are per day, so that no rate limit window ends during a test.
        PRESSROOM_RATE_LIMIT_ANONYMOUS=f"{MAX_ANONYMOUS_CALLS_PER_DAY}/day",
        PRESSROOM_RATE_LIMIT_LOGIN=f"{MAX_LOGINS_PER_DAY}/day",
    ) as api:
        yield api.api_port


@pytest.fixture
def body_attacker(proxied_port: int) -> Iterator[Attacker]:
    """An attacker with an IP address that no other test uses."""
    with running_attacker(proxied_port, new_address()) as attacker:
        yield attacker


@dataclass
class Neighbour:
    """A customer who makes ordinary calls, and whose IP address differs from the attacker's."""

    stack: Stack
    port: int
    owner: Owner
    address: str = field(default_factory=new_address)

    def is_served(self) -> bool:
        url = f"http://{LOOPBACK}:{self.port}"
        headers = {"X-Forwarded-For": self.address}
        with plain_client(base_url=url, headers=headers) as client:
            login_reply = Visitor(self.stack, client).log_in(self.owner.email)
        headers["Authorization"] = f"Bearer {self.owner.key}"
        with plain_client(base_url=url, headers=headers) as client:
            charge = {"amount_credit": 1, "source_id": "post"}
            charge_reply = client.post("/auxilia/credits/consume", json=charge)
            file = {"file": ("a.jpg", photo())}
            upload_reply = client.post("/attachments", files=file, headers={"Prefer": "wait=60"})
        replies = (login_reply, charge_reply, upload_reply)
        return [each.status_code for each in replies] == [303, 200, 200]


@pytest.fixture
def neighbour(stack: Stack, proxied_port: int) -> Neighbour:
    """A customer with a password, credits and an API key, whom the attacker must not disturb."""
    email = new_email()
    with stack.resources.unit_of_work() as uow:
        user_id = accounts.create_user(uow, email=email, name="N", password=PASSWORD).id
    grant(stack, user_id, "100")
    return Neighbour(stack, proxied_port, Owner(user_id, email, stack.create_key(user_id)))


def test_bodies_without_credentials_are_never_read(
    body_attacker: Attacker, neighbour: Neighbour
) -> None:
    connections = [
        body_attacker.begin_request(
            "POST /composer/metadata", declares=8 * MEGABYTE - 1, sends=256 * 1024
        )
        for _ in range(32)
    ]
    assert neighbour.is_served()
    assert {read_answer(each) for each in connections} == {(401, "auth.credentials_missing")}


def test_account_at_its_body_limits_does_not_block_other_accounts(
    stack: Stack, body_attacker: Attacker, neighbour: Neighbour
) -> None:
    key = stack.create_owner().key
    small = MAX_SMALL_BODY_BYTES - 1024
    body_attacker.begin_request(
        ADD_MEMBERS, declares=32 * MEGABYTE, sends=LARGE_SHARE - MEGABYTE, key=key
    )
    for _ in range(SMALL_SHARE // small):
        body_attacker.begin_request(CONSUME, declares=small + 1, sends=small, key=key)
    while True:
        connection = body_attacker.begin_request(CONSUME, declares=small, key=key)
        connection.settimeout(0.2)
        try:
            assert read_answer(connection) == (429, "body.too_many_unfinished")
        except TimeoutError:
            # A timeout means that the API is waiting for the rest of the body. The account hasn't
            # reached its limit of incomplete request bodies yet.
            continue
        break
    assert neighbour.is_served()


def test_body_limit_per_owner_is_shared_by_all_client_addresses(
    stack: Stack, proxied_port: int
) -> None:
    key = stack.create_owner().key
    with (
        running_attacker(proxied_port, new_address()) as first,
        running_attacker(proxied_port, new_address()) as second,
    ):
        connections = [
            body_attacker.begin_request("POST /lists", declares=1024, key=key)
            for body_attacker in (first, second)
            for _ in range(MAX_UNFINISHED_BODIES // 2 + 1)
        ]
        assert read_first_answer(connections) == (429, "body.too_many_unfinished")


def test_body_limit_per_owner_counts_the_console_forms_of_a_session(
    stack: Stack, proxied_port: int
) -> None:
    with stack.resources.unit_of_work() as uow:
        secret = sessions.begin_session(uow, stack.create_owner().person_id)
    cookie = f"{SESSION_COOKIE}={secret}"
    with (
        running_attacker(proxied_port, new_address()) as first,
        running_attacker(proxied_port, new_address()) as second,
    ):
        connections = [
            body_attacker.begin_request("POST /console/lists/new", declares=1024, cookie=cookie)
            for body_attacker in (first, second)
            for _ in range(MAX_UNFINISHED_BODIES // 2 + 1)
        ]
        assert read_first_answer(connections)[0] == 429


def test_body_budget_is_released_when_connections_close(
    stack: Stack, proxied_port: int, neighbour: Neighbour
) -> None:
    key = stack.create_owner().key
    with running_attacker(proxied_port, neighbour.address) as body_attacker:
        connections = [
            body_attacker.begin_request("POST /lists", declares=1024, key=key)
            for _ in range(MAX_UNFINISHED_BODIES + 1)
        ]
        assert read_first_answer(connections) == (429, "body.too_many_unfinished")
    eventually(neighbour.is_served, what="the release of the body budget")


def operations(is_included: Callable[[Access], bool]) -> Iterator[str]:
    for route in list_api_routes(create_app(Settings.model_construct())):
        access = find_access(route)
        assert access
        if is_included(access):
            path = re.sub(r"\{[^}]*\}", "1", route.path_format or "")
            yield from (f"{method} {path}" for method in route.methods or ())


def test_routes_that_require_credentials_reject_before_reading_the_body(
    body_attacker: Attacker,
) -> None:
    # Announce a body above MAX_UNCHECKED_BODY_BYTES. Some routes read a smaller body before they
    # check the caller, because the body may contain a trace id.
    declares = MAX_UNCHECKED_BODY_BYTES + 1
    statuses = {
        operation: read_answer(body_attacker.begin_request(operation, declares=declares))[0]
        for operation in operations(needs_credentials)
    }
    assert len(statuses) > 40
    assert set(statuses.values()) == {401}, statuses


def needs_credentials(access: Access) -> bool:
    return bool(access.docs.errors) and not is_optional(access)


def is_optional(access: Access) -> bool:
    return {} in access.docs.security and not isinstance(access, TraceAccess)


def test_routes_for_strangers_are_rate_limited_before_reading_the_body(proxied_port: int) -> None:
    address = new_address()
    with running_attacker(proxied_port, address) as attacker_at_limit:
        connections = [
            attacker_at_limit.begin_request("POST /login", declares=1024)
            for _ in range(MAX_LOGINS_PER_DAY + 1)
        ]
        assert read_first_answer(connections)[0] == 429
        for operation in operations(lambda access: access.stranger is RateLimitName.LOGIN):
            assert (
                read_answer(attacker_at_limit.begin_request(operation, declares=1024))[0] == 429
            ), operation
        # The rate limit for login attempts doesn't apply to opening the login page.
        assert read_answer(attacker_at_limit.begin_request("GET /login", declares=0))[0] == 200
    with running_attacker(proxied_port, address) as attacker_at_limit:
        for _ in range(MAX_ANONYMOUS_CALLS_PER_DAY):
            read_answer(attacker_at_limit.begin_request("GET /login", declares=0))
        for operation in operations(is_for_strangers):
            assert (
                read_answer(attacker_at_limit.begin_request(operation, declares=1024))[0] == 429
            ), operation


def is_for_strangers(access: Access) -> bool:
    is_counted_by_address = isinstance(access, PublicAccess | PageAccess)
    return is_counted_by_address and access.stranger is RateLimitName.ANONYMOUS


def test_account_forms_are_read_only_from_logged_in_people(
    body_attacker: Attacker,
) -> None:
    forms = {*operations(lambda access: isinstance(access, PageAccess) and access.is_form)}
    # The consent page validates the app's request before the login, so it reads the form first.
    statuses = {
        operation: read_answer(body_attacker.begin_request(operation, declares=1024))[0]
        for operation in forms - {"POST /oauth/authorize"}
    }
    assert len(statuses) > 40
    assert set(statuses.values()) == {303}, statuses
