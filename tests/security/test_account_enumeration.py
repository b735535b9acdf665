"""Tests that neither responses nor their durations reveal who has an account."""

import re
import time
from collections.abc import Iterator
from statistics import median

import pytest

from api.response_timing import STEP_SECONDS
from devstack import LOOPBACK
from devstack.harness.free_ports import free_port
from devstack.harness.stack import Stack
from models import User
from services.accounts import passwords
from tests.support.people.visiting import PASSWORD, new_account, new_address, new_visitor
from tests.support.security.people import Request
from tests.support.security.stopwatch import share_of_slower_first, time_requests
from tests.support.stack.cheap_passwords import thorough_hashes

PAIR_COUNT = 60
# The tests send fewer pairs of login requests than of other requests, because each login hashes a
# password, which uses a CPU core for a while.
LOGIN_PAIR_COUNT = 12
CONCURRENT_REQUESTS = 4
# In each pair of requests, one request is for a known address and one for an unknown address. If
# both requests take equally long on average, the request for the known address is slower in about
# half of the pairs, as in tosses of a fair coin. The share of pairs in which the request for the
# known address is slower may deviate from one half by at most 5.6 standard deviations.
MAX_SHARE_DEVIATION = 5.6 * 0.5 / PAIR_COUNT**0.5
FORMS = {"/register": {}, "/password/forgotten": {}, "/login": {"password": "not the password"}}


@pytest.fixture(scope="module")
def password_hash() -> str:
    """A hash of the test password that costs as much time as in production."""
    with thorough_hashes():
        return passwords.hash_password(PASSWORD)


@pytest.fixture(scope="module")
def stack_with_full_hashes(stack: Stack) -> Iterator[Stack]:
    """The test stack with a second API, which hashes passwords at the full cost of production."""
    port = free_port()
    url = f"http://{LOOPBACK}:{port}"
    with stack.run_second_api(port, module="cli.main", PRESSROOM_PUBLIC_URL=url) as api:
        yield api


def comparable_reply(
    stack: Stack, path: str, email: str, **fields: str
) -> tuple[int, str, list[str]]:
    with new_visitor(stack) as visitor:
        reply = visitor.fill_in(path, email=email, **fields)
        names = sorted({name for name in reply.headers if name != "content-length"})
        # Remove the values of the form fields, because each response has a new CSRF token and
        # repeats the address from its request.
        text = re.sub(r'(value|data-options)="[^"]*"', "", reply.text)
        return reply.status_code, text, names


@pytest.mark.parametrize("path", FORMS)
def test_account_forms_answer_known_and_unknown_addresses_identically(
    stack: Stack, path: str
) -> None:
    addresses = (new_account(stack), new_account(stack, password=None), new_address())
    answers = [
        comparable_reply(stack, path, email, **FORMS[path]) for email in addresses for _ in range(4)
    ]
    assert answers == [answers[0]] * len(answers)


@pytest.mark.parametrize("path", FORMS)
def test_account_forms_never_answer_before_the_padded_duration(
    stack: Stack, path: str, password_hash: str
) -> None:
    [pair] = time_pairs(stack, path, password_hash, 1)
    assert min(pair) >= STEP_SECONDS * 0.95


@pytest.mark.tier("timing")
@pytest.mark.parametrize("path", ["/register", "/password/forgotten"])
def test_mail_requests_take_equally_long_for_known_and_unknown_addresses(
    stack_with_full_hashes: Stack, path: str, password_hash: str
) -> None:
    pairs = time_pairs(stack_with_full_hashes, path, password_hash, PAIR_COUNT)
    assert min(seconds for pair in pairs for seconds in pair) >= STEP_SECONDS * 0.95
    assert abs(share_of_slower_first(pairs) - 0.5) <= MAX_SHARE_DEVIATION, sorted(pairs)


@pytest.mark.tier("timing")
def test_login_takes_equally_long_for_known_and_unknown_addresses(
    stack_with_full_hashes: Stack, password_hash: str
) -> None:
    pairs = time_pairs(stack_with_full_hashes, "/login", password_hash, LOGIN_PAIR_COUNT)
    assert min(seconds for pair in pairs for seconds in pair) >= STEP_SECONDS * 0.95
    known, unknown = (median(times) for times in zip(*pairs, strict=True))
    assert 0.5 < known / unknown < 2, sorted(pairs)


@pytest.mark.tier("timing")
def test_password_check_costs_the_same_for_account_without_password(password_hash: str) -> None:
    cpu_seconds = {}
    with thorough_hashes():
        # Compute the dummy password hash before the measurement, because ``verify_password``
        # computes it only in the first call without a stored hash.
        passwords.verify_password(None, "as it is once the first has come")
        for stored_hash in (password_hash, None):
            began_at = time.process_time()
            for _ in range(3):
                assert not passwords.verify_password(stored_hash, "not the password").matches
            cpu_seconds[stored_hash] = time.process_time() - began_at
    assert 0.5 < cpu_seconds[None] / cpu_seconds[password_hash] < 2


def time_pairs(
    stack: Stack, path: str, password_hash: str, count: int
) -> list[tuple[float, float]]:
    """Return how many seconds the two requests of each pair took.

    The first request of a pair is for an address with an account, the second one for an address
    without an account.
    """
    known = [new_address() for _ in range(count)]
    with stack.resources.unit_of_work() as uow:
        uow.session.add_all(User(email=email, password_hash=password_hash) for email in known)

    def build_request(email: str) -> Request:
        return ("POST", path, {"email": email, **FORMS[path]})

    requests = [(build_request(email), build_request(new_address())) for email in known]
    return time_requests(stack, requests, CONCURRENT_REQUESTS)
