import threading

import pytest

from core.calls import breaker
from core.calls.breaker import Breaker
from core.errors import ServerFailed, TransientError


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    fake_clock = Clock()
    monkeypatch.setattr(breaker, "time", fake_clock)
    return fake_clock


class Server:
    """A fake server that counts the calls that reach it."""

    def __init__(self, guard: Breaker) -> None:
        self.guard = guard
        self.error: Exception | None = ServerFailed("test server", "down")
        self.calls = 0

    def call(self) -> None:
        with self.guard.protect():
            self.calls += 1
            if self.error is not None:
                raise self.error

    def require_failures(self, times: int = 1) -> None:
        for _ in range(times):
            with pytest.raises(TransientError):
                self.call()


def test_circuit_breaker_blocks_calls_to_failed_server_for_increasing_pauses(clock: Clock) -> None:
    server = Server(Breaker("test server"))
    server.require_failures()
    for pause_seconds in (1.0, 2.0, 4.0, 5.0, 5.0):
        calls_before = server.calls
        clock.now += pause_seconds - 0.1
        server.require_failures(times=5)
        assert server.calls == calls_before
        clock.now += 0.2
        server.require_failures(times=5)
        assert server.calls == calls_before + 1


def test_circuit_breaker_lets_one_call_probe_and_rejects_concurrent_calls(clock: Clock) -> None:
    guard = Breaker("test server")
    server = Server(guard)
    server.require_failures()
    clock.now += 2
    server.error = None
    with guard.protect():
        # Make the rejected call in another thread, because concurrent calls of a process come from
        # different threads.
        other_thread = threading.Thread(target=server.require_failures)
        other_thread.start()
        other_thread.join()
    assert server.calls == 1
    server.call()


def test_circuit_breaker_ignores_late_failure_of_call_that_began_before_recovery(
    clock: Clock,
) -> None:
    guard = Breaker("test server")
    server = Server(guard)

    def time_out() -> None:
        with guard.protect():
            # While one call is in progress, a second call fails and opens the circuit breaker. A
            # third call succeeds and closes the circuit breaker. The first call fails last.
            server.require_failures()
            clock.now += 2
            server.error = None
            server.call()
            raise ServerFailed("test server", "timed out")

    with pytest.raises(ServerFailed):
        time_out()
    server.call()
    server.error = ServerFailed("test server", "down")
    server.require_failures(times=2)
    assert server.calls == 4


def test_circuit_breaker_pause_is_not_extended_by_late_failure_of_an_earlier_call(
    clock: Clock,
) -> None:
    guard = Breaker("test server")
    server = Server(guard)

    def time_out() -> None:
        with guard.protect():
            server.require_failures()
            clock.now += 0.9
            raise ServerFailed("test server", "timed out")

    with pytest.raises(ServerFailed):
        time_out()
    clock.now += 0.2
    server.error = None
    server.call()


def test_circuit_breaker_lets_next_call_probe_after_an_interrupted_probe(clock: Clock) -> None:
    guard = Breaker("test server")
    server = Server(guard)
    server.require_failures()
    clock.now += 2
    with pytest.raises(KeyboardInterrupt), guard.protect():
        raise KeyboardInterrupt
    server.error = None
    server.call()
    assert server.calls == 2


def test_circuit_breaker_does_not_count_rejecting_responses_as_server_failures(
    clock: Clock,
) -> None:
    server = Server(Breaker("test server"))
    server.error = TransientError("Not for you.")
    server.require_failures(times=3)
    assert server.calls == 3


def test_circuit_breaker_opens_only_after_tolerated_number_of_failures(clock: Clock) -> None:
    server = Server(Breaker("test server", tolerated=2))
    server.require_failures(times=10)
    assert server.calls == 3


def test_guarded_call_returns_nothing_while_the_circuit_breaker_is_open(clock: Clock) -> None:
    guard = Breaker("test server", OSError)

    def fail() -> str:
        raise OSError

    assert guard.attempt("test.failed", fail) is None
    assert guard.attempt("test.failed", lambda: "answer") is None
    clock.now += 2
    assert guard.attempt("test.failed", lambda: "answer") == "answer"
