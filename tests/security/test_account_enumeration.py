"""Strangers can't find out who has an account, neither by the answers nor by their time."""

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
from tests.support.people.visiting import PASSWORD, a_visitor, new_account, new_address
from tests.support.security.people import Request
from tests.support.security.stopwatch import share_of_slower_first, time_requests
from tests.support.stack.cheap_passwords import thorough_hashes

PAIRS = 60
# Each login takes a core for a while.
FEW = 12
AT_ONCE = 4
# 5.6 standard deviations of so many fair coins.
MOST_UNEVEN = 5.6 * 0.5 / PAIRS**0.5
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
    with a_visitor(stack) as visitor:
        reply = visitor.fill_in(path, email=email, **fields)
        names = sorted({name for name in reply.headers if name != "content-length"})
        # Forms have a token of the browser's, and say what was typed.
        text = re.sub(r'(value|data-options)="[^"]*"', "", reply.text)
        return reply.status_code, text, names


@pytest.mark.parametrize("path", FORMS)
def test_account_forms_answer_known_and_unknown_addresses_identically(
    stack: Stack, path: str
) -> None:
    kinds = (new_account(stack), new_account(stack, password=None), new_address())
    answers = [
        comparable_reply(stack, path, email, **FORMS[path]) for email in kinds for _ in range(4)
    ]
    assert answers == [answers[0]] * len(answers)


@pytest.mark.parametrize("path", FORMS)
def test_account_forms_never_answer_before_the_padded_duration(
    stack: Stack, path: str, password_hash: str
) -> None:
    [pair] = timed_pairs(stack, path, password_hash, 1)
    assert min(pair) >= STEP_SECONDS * 0.95


@pytest.mark.tier("timing")
@pytest.mark.parametrize("path", ["/register", "/password/forgotten"])
def test_mail_requests_take_equally_long_for_known_and_unknown_addresses(
    stack_with_full_hashes: Stack, path: str, password_hash: str
) -> None:
    timed = timed_pairs(stack_with_full_hashes, path, password_hash, PAIRS)
    assert min(seconds for pair in timed for seconds in pair) >= STEP_SECONDS * 0.95
    assert abs(share_of_slower_first(timed) - 0.5) <= MOST_UNEVEN, sorted(timed)


@pytest.mark.tier("timing")
def test_login_takes_equally_long_for_known_and_unknown_addresses(
    stack_with_full_hashes: Stack, password_hash: str
) -> None:
    timed = timed_pairs(stack_with_full_hashes, "/login", password_hash, FEW)
    assert min(seconds for pair in timed for seconds in pair) >= STEP_SECONDS * 0.95
    known, unknown = (median(times) for times in zip(*timed, strict=True))
    assert 0.5 < known / unknown < 2, sorted(timed)


@pytest.mark.tier("timing")
def test_password_check_costs_the_same_for_account_without_password(password_hash: str) -> None:
    spent = {}
    with thorough_hashes():
        passwords.verify_password(None, "as it is once the first has come")
        for kept in (password_hash, None):
            began = time.process_time()
            for _ in range(3):
                assert not passwords.verify_password(kept, "not the password").matches
            spent[kept] = time.process_time() - began
    assert 0.5 < spent[None] / spent[password_hash] < 2


def timed_pairs(
    stack: Stack, path: str, password_hash: str, count: int
) -> list[tuple[float, float]]:
    """Seconds for an address with an account, and for one without."""
    known = [new_address() for _ in range(count)]
    with stack.resources.unit_of_work() as uow:
        uow.session.add_all(User(email=email, password_hash=password_hash) for email in known)

    def asking(email: str) -> Request:
        return ("POST", path, {"email": email, **FORMS[path]})

    requests = [(asking(email), asking(new_address())) for email in known]
    return time_requests(stack, requests, AT_ONCE)
