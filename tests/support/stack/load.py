"""Callers who go on while a test changes what serves them."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from uuid import uuid4

import httpx2

from devstack.harness.polling import Result, eventually
from devstack.harness.stack import plain_client

# A client that its user waits for tries for no longer.
MENDED_WITHIN = 30.0
_PAUSE = 0.2
# A server that asks to try again.
_NOT_NOW = frozenset({409, 429, 500, 502, 503, 504})


@dataclass
class Caller:
    """A client that asks again until it is answered, and keeps its connection.

    A call with an Idempotency-Key is made again after a broken connection too; without one that is
    a failure, since the call may have been done.
    """

    load: "Load"
    key: str
    # The call under way, and when it began.
    _doing: str = "no call yet"
    _since: float = field(default_factory=time.monotonic)
    _http: httpx2.Client = field(default_factory=lambda: plain_client(timeout=30.0))

    def call(
        self,
        method: str,
        path: str,
        *,
        keyed: bool = True,
        headers: Mapping[str, str] = MappingProxyType({}),
        **more: object,
    ) -> httpx2.Response:
        key = {"Idempotency-Key": uuid4().hex} if keyed else {}
        own = {"X-API-Key": self.key, **key, **headers}
        self._doing, self._since = f"{method} {path}", time.monotonic()
        until = self._since + MENDED_WITHIN
        while True:
            try:
                answer = self._http.request(
                    method,
                    self.load.url + path,
                    headers=own,
                    **more,  # type: ignore[arg-type]
                )
                if answer.is_success:
                    self.load.longest = max(self.load.longest, time.monotonic() - self._since)
                    return answer
                found, is_for_good = answer.text, answer.status_code not in _NOT_NOW
                found = f"{answer.status_code} {found}"
            except httpx2.TransportError as error:
                found, is_for_good = repr(error), not keyed
            found = f"{self._doing}: {found}"
            self.load.again.append(found)
            assert not is_for_good, found
            assert time.monotonic() < until, self.load.again[-5:]
            time.sleep(_PAUSE)

    def close(self) -> None:
        self._http.close()

    def told(self) -> str:
        return f"{self._doing} for {time.monotonic() - self._since:.1f} s"


Action = Callable[[Caller], None]


def charge(caller: Caller, *, keyed: bool = True) -> None:
    """Take a credit of the caller's, and count that."""
    body = {"amount_credit": 1, "source_id": "load"}
    caller.call("POST", "/auxilia/credits/consume", json=body, keyed=keyed)
    caller.load.count()


@contextmanager
def repeated(*actions: Callable[[], object], pause: float = 0.0) -> Iterator[None]:
    """Do each action again and again, in a thread of its own, until the block ends."""
    over = threading.Event()

    def repeat(action: Callable[[], object]) -> None:
        while not over.is_set():
            action()
            over.wait(pause)

    with ThreadPoolExecutor(len(actions) or 1) as threads:
        going = [threads.submit(repeat, action) for action in actions]
        try:
            yield
        finally:
            over.set()
    for each in going:
        each.result()


def at_once(count: int, call: Callable[[], Result]) -> list[Result]:
    """What so many calls give that begin at the same moment."""
    together = threading.Barrier(count)

    def begin(_: int) -> Result:
        together.wait(60)
        return call()

    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(begin, range(count)))


@dataclass
class Load:
    """Calls that go on until the load ends.

    Attributes:
        done: how many actions of callers have ended well.
        again: each answer because of which a call was made again.
        longest: seconds that the slowest call took, with all of its tries.
    """

    url: str
    done: int = 0
    again: list[str] = field(default_factory=list)
    longest: float = 0.0
    _callers: list[Caller] = field(default_factory=list)
    _faults: list[BaseException] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)
    _count: threading.Lock = field(default_factory=threading.Lock)

    def count(self) -> None:
        with self._count:
            self.done += 1

    @contextmanager
    def going_on(self, *actions: tuple[str, Action]) -> Iterator[None]:
        """Repeat each action, as the caller with this key.

        A failure says what each caller was doing.
        """
        self._callers = [Caller(self, key) for key, _ in actions]
        threads = [
            threading.Thread(target=self._repeat, args=(action, caller), daemon=True)
            for (_, action), caller in zip(actions, self._callers, strict=True)
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        except BaseException as error:
            error.add_note(f"Meanwhile the callers were in {self._told()}; {self._faults}")
            raise
        finally:
            self._end(threads)
        assert self._faults == []

    def require_more(self, actions: int) -> None:
        """Wait until so many more have ended well."""
        before = self.done

        def is_enough() -> bool:
            assert self._faults == []
            return self.done >= before + actions

        eventually(is_enough, within=120, what=f"{actions} actions after {before}")

    def _end(self, threads: list[threading.Thread]) -> None:
        self._over.set()
        # Two calls of an action, each with its last try.
        until = time.monotonic() + 4 * MENDED_WITHIN
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
        assert not any(thread.is_alive() for thread in threads), self._told()

    def _told(self) -> list[str]:
        return [caller.told() for caller in self._callers]

    def _repeat(self, action: Action, caller: Caller) -> None:
        try:
            while not self._over.is_set():
                action(caller)
        except BaseException as error:  # noqa: BLE001 - the thread of the test raises it
            self._faults.append(error)
        finally:
            caller.close()
