"""Another caller's calls while one address holds all that it can get of the memory for bodies.

The baseline is the same calls when that address is quiet.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx

from api.limits.body_budgets import (
    MAX_HELD_LARGE_BODY_BYTES,
    MAX_HELD_SMALL_BODY_BYTES,
    MAX_SMALL_BODY_BYTES,
    SHARES,
)
from benchmarks.measure import Finding, alternate, full_size, median_and_spread, percentile
from benchmarks.own_stack import own_stack
from devstack import LOOPBACK
from services.people import accounts
from tests.contract.credits import grant
from tests.pictures import photo
from tests.security.attackers import Attacker, attacking
from tests.stack import Stack, plain_client
from tests.visiting import PASSWORD, Visitor

CALLS = 200 if full_size() else 40
ROUNDS = 5 if full_size() else 3
MOST_TIMES = 2.0
EMAIL = "caller@example.com"
CONSUME = "/auxilia/credits/consume"
ATTACKER, CALLER = "192.0.2.1", "192.0.2.2"

Call = Callable[[], int]


def run() -> list[Finding]:
    with _stack() as stack:
        key = _caller_key(stack)
        behind = {"X-Forwarded-For": CALLER}
        with (
            plain_client(
                base_url=stack.api_url, headers={**behind, "Authorization": f"Bearer {key}"}
            ) as program,
            plain_client(base_url=stack.api_url, headers=behind) as browser,
        ):
            return [
                finding
                for name, call, count in _calls(stack, program, browser)
                for finding in _compare(stack, name, call, count)
            ]


def _calls(
    stack: Stack, program: httpx.Client, browser: httpx.Client
) -> Iterator[tuple[str, Call, int]]:
    charge, picture = {"amount_credit": 0.0001, "source_id": "post"}, photo()

    def log_in() -> int:
        browser.cookies.clear()
        return Visitor(stack, browser).log_in(EMAIL).status_code

    def upload() -> int:
        files = {"file": ("a.jpg", picture)}
        return program.post("/attachments", files=files).status_code

    yield "consume", lambda: program.post(CONSUME, json=charge).status_code, CALLS
    yield "login", log_in, CALLS // 4
    yield "upload", upload, CALLS // 4


@contextmanager
def _stack() -> Iterator[Stack]:
    with own_stack("bodies") as stack:
        stack.start_api(PRESSROOM_LOG_LEVEL="warning", PRESSROOM_TRUSTED_PROXIES=LOOPBACK)
        stack.start_worker("media")
        yield stack


def _caller_key(stack: Stack) -> str:
    with stack.resources.unit_of_work() as uow:
        user_id = accounts.create_user(uow, email=EMAIL, name="Caller", password=PASSWORD).id
    grant(stack, user_id, "1000")
    return stack.new_key(user_id)


def _compare(stack: Stack, name: str, call: Call, count: int) -> list[Finding]:
    held: list[list[float]] = []
    quiet: list[list[float]] = []
    key = stack.new_owner().key

    def beside_the_attacker() -> float:
        with attacking(stack.api_port, ATTACKER) as attacker:
            _hold_all(attacker, key)
            held.append(_times(call, count))
        return 0.0

    def alone() -> float:
        quiet.append(_times(call, count))
        return 0.0

    alternate(beside_the_attacker, alone, rounds=ROUNDS)
    findings = []
    for share in (0.5, 0.99):
        pairs = [
            (percentile(beside, share), percentile(by_itself, share))
            for beside, by_itself in zip(held[1:], quiet[1:], strict=True)
        ]
        ratio, spread = median_and_spread([beside / by_itself for beside, by_itself in pairs])
        details = {
            "held_ms": round(1000 * median_and_spread([times[0] for times in pairs])[0], 1),
            "quiet_ms": round(1000 * median_and_spread([times[1] for times in pairs])[0], 1),
            "calls": count,
        }
        bar = f"≤ {MOST_TIMES:g} ×"
        title = f"bodies: {name} p{share * 100:g}"
        findings.append(Finding(title, ratio, "×", bar, ratio <= MOST_TIMES, spread, details))
    return findings


def _hold_all(attacker: Attacker, key: str) -> None:
    """As much as the address may have, in large bodies and in small ones that never end."""
    share, small = MAX_HELD_LARGE_BODY_BYTES // SHARES, MAX_SMALL_BODY_BYTES - 1024
    operation = "POST /auxilia/subscriptions/1/members/add"
    attacker.begins(operation, declares=share, sends=share - small, key=key)
    for _ in range(MAX_HELD_SMALL_BODY_BYTES // SHARES // small):
        attacker.begins("POST /lists", declares=small + 1, sends=small, key=key)


def _times(call: Call, count: int) -> list[float]:
    """Seconds of each call, made one after another: so few that the machine is not the limit."""
    found = []
    for _ in range(count):
        began = time.perf_counter()
        status = call()
        found.append(time.perf_counter() - began)
        assert status in (200, 303), f"answered {status}"
    return found
