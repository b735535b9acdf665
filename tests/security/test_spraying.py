"""Tests that password spraying pauses logins from the sprayer's network, but no other logins."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from core.errors import DomainError
from devstack import LOOPBACK
from devstack.harness.stack import Stack
from services.accounts import logins
from tests.support.people.visiting import Visitor, new_account, new_address, new_visitor

FREE_ATTEMPTS = logins.SOURCE_THROTTLE.free


@pytest.fixture(scope="module")
def stack_behind_proxy(stack: Stack) -> Iterator[Stack]:
    """The test stack with a second API, which trusts the header X-Forwarded-For."""
    with stack.run_second_api(PRESSROOM_TRUSTED_PROXIES=LOOPBACK) as api:
        yield api


@pytest.fixture
def visitor_at(stack_behind_proxy: Stack) -> Iterator[Callable[[str], Visitor]]:
    """A function that opens a browser with the given IP address."""
    with ExitStack() as opened:

        def make(address: str) -> Visitor:
            visitor = opened.enter_context(new_visitor(stack_behind_proxy))
            visitor.client.headers["X-Forwarded-For"] = address
            return visitor

        yield make


@pytest.fixture(autouse=True)
def _reset_failed_logins(stack: Stack) -> Iterator[None]:
    """Delete all counts of failed logins before and after the test."""
    stack.query("DELETE FROM login_attempts")
    yield
    stack.query("DELETE FROM login_attempts")


def spray(stack: Stack, addresses: Callable[[int], str], account_count: int) -> int:
    """Attempt one login to each of many accounts, and return the number of permitted attempts."""
    accepted_attempts = 0
    for number in range(account_count):
        client = addresses(number)
        try:
            with stack.resources.unit_of_work() as uow:
                logins.begin_attempt(uow, email=new_address(), client=client, browser_token=None)
            accepted_attempts += 1
        except DomainError as error:
            if error.code != "login.paused":
                raise
    return accepted_attempts


def prolong_pauses(stack: Stack) -> None:
    """Prolong all current pauses of logins to one hour, so that none ends during the test."""
    update = (
        "UPDATE login_attempts SET paused_until = now() + interval '1 hour' WHERE attempts >= %s"
    )
    stack.query(update, FREE_ATTEMPTS)


@pytest.mark.parametrize(
    "addresses",
    [lambda number: f"198.51.100.{number % 250}", lambda number: f"2001:db8:0:1::{number:x}"],
    ids=["ipv4", "ipv6"],
)
def test_password_spraying_from_one_network_is_paused(
    stack: Stack, addresses: Callable[[int], str]
) -> None:
    # After FREE_ATTEMPTS attempts, each further attempt doubles the pause.
    assert FREE_ATTEMPTS <= spray(stack, addresses, 100) < FREE_ATTEMPTS + 10


def test_spraying_pause_spares_known_browsers_other_networks_and_password_resets(
    stack: Stack, visitor_at: Callable[[str], Visitor]
) -> None:
    person = new_account(stack)
    colleague = new_account(stack)
    at_home = visitor_at("198.51.100.7")
    assert at_home.log_in(person).status_code == 303
    csrf = {"csrf_token": at_home.csrf_token()}
    assert at_home.client.post("/logout", data=csrf).status_code == 303
    spray(stack, lambda _: "198.51.100.66", 100)
    prolong_pauses(stack)
    reply = visitor_at("198.51.100.8").log_in(colleague)
    assert reply.status_code == 429
    assert int(reply.headers["retry-after"]) >= 1
    # The pause of logins applies neither to a browser in which the person has logged in before, nor
    # to logins from another network.
    assert at_home.log_in(person).status_code == 303
    assert visitor_at("198.51.101.8").log_in(colleague).status_code == 303
    resetting_colleague = visitor_at("198.51.100.8")
    resetting_colleague.fill_in("/password/forgotten", email=colleague)
    link = resetting_colleague.mailed_path(colleague, "Choose a new password")
    reply = resetting_colleague.fill_in(link, password="an altogether other one")
    assert reply.status_code == 303


def test_one_person_mistyping_passwords_does_not_block_colleagues_logins(
    stack: Stack, visitor_at: Callable[[str], Visitor]
) -> None:
    mistyper = new_account(stack)
    colleague = new_account(stack)
    office = visitor_at("198.51.100.9")
    for _ in range(logins.CLIENT_THROTTLE.free):
        assert office.log_in(mistyper, "not the password").status_code == 403
    assert stack.query("SELECT max(attempts) FROM login_attempts WHERE source IS NULL") == [(5,)]
    counts = (
        "SELECT attempts FROM login_attempts WHERE subject IN (SELECT source FROM login_attempts)"
    )
    assert stack.query(counts) == [(1,)]
    assert visitor_at("198.51.100.9").log_in(colleague).status_code == 303
    # The successful login of the colleague doesn't increase the network's count of failed logins.
    assert stack.query(counts) == [(1,)]


def test_colleagues_can_log_in_concurrently_from_one_network(stack: Stack) -> None:
    with ThreadPoolExecutor(8) as pool:
        accepted_attempts = pool.map(
            lambda _: spray(stack, lambda _: "198.51.100.66", 1), range(FREE_ATTEMPTS - 1)
        )
    assert sum(accepted_attempts) == FREE_ATTEMPTS - 1


def test_successful_logins_to_own_account_do_not_clear_the_spraying_count(stack: Stack) -> None:
    spray(stack, lambda _: "198.51.100.66", FREE_ATTEMPTS - 10)
    own_email = new_address()
    for _ in range(5):
        with stack.resources.unit_of_work() as uow:
            attempt = logins.begin_attempt(
                uow, email=own_email, client="198.51.100.66", browser_token=None
            )
            logins.clear_attempt(uow, attempt)
    assert spray(stack, lambda _: "198.51.100.66", 100) < 20
