"""Simulates callers who repeat calls while a test restarts or replaces processes."""

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

# The maximum number of seconds for which a caller retries a failed API call. A real client would
# give up after a similar time, because its user is waiting.
MAX_RETRY_SECONDS = 30.0
_PAUSE_SECONDS = 0.2
# The HTTP statuses after which a caller retries a call.
_RETRYABLE_STATUSES = frozenset({409, 429, 500, 502, 503, 504})


@dataclass
class Caller:
    """A client that retries calls until they succeed, and keeps its connection open.

    If the connection breaks during a call, the client retries only a call with an Idempotency-Key.
    A call without an Idempotency-Key fails, because a retry could repeat an action that the server
    has already performed.
    """

    load: "Load"
    key: str
    # The call in progress, and the time at which it began.
    _current_call: str = "no call yet"
    _began_at: float = field(default_factory=time.monotonic)
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
        idempotency = {"Idempotency-Key": uuid4().hex} if keyed else {}
        all_headers = {"X-API-Key": self.key, **idempotency, **headers}
        self._current_call = f"{method} {path}"
        self._began_at = time.monotonic()
        deadline = self._began_at + MAX_RETRY_SECONDS
        while True:
            try:
                answer = self._http.request(
                    method,
                    self.load.url + path,
                    headers=all_headers,
                    **more,  # type: ignore[arg-type]
                )
                if answer.is_success:
                    self.load.longest = max(self.load.longest, time.monotonic() - self._began_at)
                    return answer
                failure = f"{answer.status_code} {answer.text}"
                is_final = answer.status_code not in _RETRYABLE_STATUSES
            except httpx2.TransportError as error:
                failure = repr(error)
                is_final = not keyed
            failure = f"{self._current_call}: {failure}"
            self.load.retried.append(failure)
            assert not is_final, failure
            assert time.monotonic() < deadline, self.load.retried[-5:]
            time.sleep(_PAUSE_SECONDS)

    def close(self) -> None:
        self._http.close()

    def describe_call(self) -> str:
        """Return a description of the call in progress."""
        return f"{self._current_call} for {time.monotonic() - self._began_at:.1f} s"


Action = Callable[[Caller], None]


def charge(caller: Caller, *, keyed: bool = True) -> None:
    """Charge the caller one credit, and add the charge to the number of successful actions."""
    body = {"amount_credit": 1, "source_id": "load"}
    caller.call("POST", "/auxilia/credits/consume", json=body, keyed=keyed)
    caller.load.count()


@contextmanager
def repeating(*actions: Callable[[], object], pause: float = 0.0) -> Iterator[None]:
    """Repeat each action in a separate thread until the block ends."""
    stop = threading.Event()

    def repeat(action: Callable[[], object]) -> None:
        while not stop.is_set():
            action()
            stop.wait(pause)

    with ThreadPoolExecutor(len(actions) or 1) as threads:
        futures = [threads.submit(repeat, action) for action in actions]
        try:
            yield
        finally:
            stop.set()
    for future in futures:
        future.result()


def call_at_once(count: int, call: Callable[[], Result]) -> list[Result]:
    """Make ``count`` calls that begin at the same time, and return their results."""
    barrier = threading.Barrier(count)

    def begin(_: int) -> Result:
        barrier.wait(60)
        return call()

    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(begin, range(count)))


@dataclass
class Load:
    """Several callers, each of which repeats an action.

    Attributes:
        done: the number of successful actions.
        retried: the failures after which a call was retried.
        longest: the seconds of the slowest call, including its retries.
    """

    url: str
    done: int = 0
    retried: list[str] = field(default_factory=list)
    longest: float = 0.0
    _callers: list[Caller] = field(default_factory=list)
    _faults: list[BaseException] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _count_lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self) -> None:
        with self._count_lock:
            self.done += 1

    @contextmanager
    def running(self, *actions: tuple[str, Action]) -> Iterator[None]:
        """Repeat each action with the given API key until the ``with`` block ends."""
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
            error.add_note(
                f"Meanwhile the callers were in {self._describe_callers()}; {self._faults}"
            )
            raise
        finally:
            self._end(threads)
        assert self._faults == []

    def require_more(self, actions: int) -> None:
        """Wait until the number of successful actions has grown by ``actions``."""
        before = self.done

        def is_enough() -> bool:
            assert self._faults == []
            return self.done >= before + actions

        eventually(is_enough, within=120, what=f"{actions} actions after {before}")

    def _end(self, threads: list[threading.Thread]) -> None:
        self._stop.set()
        # An action makes at most two API calls. A caller retries each call for up to
        # ``MAX_RETRY_SECONDS``, and the last attempt may take ``MAX_RETRY_SECONDS`` more until it
        # times out.
        deadline = time.monotonic() + 4 * MAX_RETRY_SECONDS
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        assert not any(thread.is_alive() for thread in threads), self._describe_callers()

    def _describe_callers(self) -> list[str]:
        return [caller.describe_call() for caller in self._callers]

    def _repeat(self, action: Action, caller: Caller) -> None:
        try:
            while not self._stop.is_set():
                action(caller)
        except BaseException as error:  # noqa: BLE001 - the thread of the test raises it
            self._faults.append(error)
        finally:
            caller.close()
