import asyncio
import threading

import pytest

from api.limits.bulkheads import PASSWORDS
from core.errors import DomainError

MAX_CALLERS = 60


def test_few_passwords_are_hashed_at_once_and_not_too_many_wait() -> None:
    go_on, all_busy = threading.Event(), threading.Event()
    guard = threading.Lock()
    running: list[int] = []
    most: list[int] = []

    def work() -> int:
        with guard:
            running.append(1)
            most.append(len(running))
            if len(running) == PASSWORDS.threads:
                all_busy.set()
        go_on.wait(30)
        with guard:
            running.pop()
        return 7

    async def rush() -> None:
        waiting = [asyncio.create_task(PASSWORDS.run(work)) for _ in range(MAX_CALLERS)]
        assert await asyncio.to_thread(all_busy.wait, 30)
        with pytest.raises(DomainError) as caught:
            await PASSWORDS.run(work)
        assert (caught.value.code, caught.value.retry_after) == ("login.busy", 5)
        go_on.set()
        assert await asyncio.gather(*waiting) == [7] * MAX_CALLERS
        assert await PASSWORDS.run(lambda: 8) == 8

    asyncio.run(rush())
    assert max(most) == PASSWORDS.threads == 4
