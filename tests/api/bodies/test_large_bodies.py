"""Tests that large JSON bodies are parsed one after the other, and callers in turn."""

import asyncio
from collections.abc import Callable
from threading import Event, Lock
from typing import Any

import pytest
from starlette.requests import Request, empty_receive

from api.bodies.json_bodies import MAX_UNQUEUED_BYTES, read_converted_json
from api.limits import keyed_bulkheads
from api.limits.body_budgets import BodyBudget
from api.middleware.body_limits import BODY_KEY, BoundedBody, find_body_limit
from core.errors import DomainError
from core.ids import AccountId

SMALL_BODY = b"[1]"
LARGE_BODY = b"[%b1]" % (b" " * MAX_UNQUEUED_BYTES)


async def read(
    convert: Callable[[Any], Any], *, account_id: AccountId | None = None, body: bytes = LARGE_BODY
) -> Any:
    bounded_body = BoundedBody(
        find_body_limit("/apikeys"), empty_receive, BodyBudget(), address="192.0.2.1"
    )
    bounded_body.account_id = account_id
    headers = [(b"content-type", b"application/json")]
    request = Request({"type": "http", "headers": headers, BODY_KEY: bounded_body})
    return await read_converted_json(request, body, convert)


class Overlaps:
    """Records how many bodies of a caller are converted at the same time."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._running = 0
        self.most = 0

    def convert(self, parsed: Any) -> Any:
        with self._lock:
            self._running += 1
            self.most = max(self.most, self._running)
        Event().wait(0.02)
        with self._lock:
            self._running -= 1
        return parsed


@pytest.mark.parametrize("account_ids", [[7] * 4, [None] * 4, [7, 8, 9, None]])
def test_large_bodies_are_read_one_after_the_other(account_ids: list[AccountId | None]) -> None:
    overlaps = Overlaps()

    async def read_several() -> list[Any]:
        return await asyncio.gather(
            *(read(overlaps.convert, account_id=each) for each in account_ids)
        )

    assert asyncio.run(read_several()) == [[1]] * 4
    assert overlaps.most == 1


def test_large_body_of_another_caller_does_not_wait_for_all_bodies_of_a_caller() -> None:
    order: list[int] = []

    async def read_one(owner_id: int) -> None:
        await read(lambda _: order.append(owner_id), account_id=AccountId(owner_id))

    async def read_several() -> None:
        await asyncio.gather(*map(read_one, (7, 7, 7, 8)))

    asyncio.run(read_several())
    assert order == [7, 8, 7, 7]


def test_small_bodies_do_not_wait_for_a_large_body() -> None:
    ended = Event()

    async def read_several() -> Any:
        busy = asyncio.create_task(read(lambda _: ended.wait(20), account_id=AccountId(7)))
        await asyncio.sleep(0)
        try:
            return await read(lambda parsed: parsed, account_id=AccountId(7), body=SMALL_BODY)
        finally:
            assert not busy.done()
            ended.set()
            await busy

    assert asyncio.run(read_several()) == [1]


def test_large_body_is_rejected_if_the_previous_one_takes_too_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(keyed_bulkheads.BODIES_BY_CALLER, "_wait_seconds", 0.05)
    ended = Event()

    async def read_two() -> None:
        busy = asyncio.create_task(read(lambda _: ended.wait(20), account_id=AccountId(7)))
        await asyncio.sleep(0)
        try:
            await read(lambda parsed: parsed, account_id=AccountId(7))
        finally:
            ended.set()
            await busy

    with pytest.raises(DomainError, match="too much data at the same time") as error:
        asyncio.run(read_two())
    assert error.value.code == "body.too_many_unfinished"
