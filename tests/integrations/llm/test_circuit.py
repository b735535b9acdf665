import threading

import pytest

from core.errors import DomainError, Kind
from integrations.llm.openai_protocol import Circuit, CircuitOpen, Health, LlmServerState
from tests.language_model import Run, question


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def failing(run: Run, clock: Clock) -> Run:
    """A run whose server broke three times, which opened the circuit for 30 seconds."""
    run.server = LlmServerState(Circuit(max_failures=3, pause_seconds=30.0, clock=clock))
    run.steer("broken")
    for _ in range(3):
        assert refused(run).code == "llm.failed"
    return run


def refused(run: Run) -> DomainError:
    with pytest.raises(DomainError) as raised:
        run.model().ask(question())
    return raised.value


def test_a_server_that_keeps_failing_is_left_alone(failing: Run) -> None:
    error = refused(failing)
    assert (error.kind, error.code, error.retry_after) == (Kind.UNAVAILABLE, "llm.unavailable", 30)
    assert failing.calls == 3


def test_after_a_pause_one_call_tries_and_its_failure_opens_it_again(
    failing: Run, clock: Clock
) -> None:
    clock.now += 31.0
    assert refused(failing).code == "llm.failed"
    assert refused(failing).code == "llm.unavailable"
    assert failing.calls == 4


def test_a_call_that_works_closes_it(failing: Run, clock: Clock) -> None:
    clock.now += 31.0
    failing.steer(None)
    for _ in range(3):
        failing.model().ask(question())
    assert failing.calls == 6


def test_answers_between_failures_keep_it_closed(run: Run) -> None:
    run.server = LlmServerState(Circuit(max_failures=2))
    for behaviour in ("broken", None, "broken", None, "broken"):
        run.steer(behaviour)
        if behaviour is None:
            run.model().ask(question())
        else:
            assert refused(run).code == "llm.failed"


@pytest.mark.parametrize("behaviour", ["refuses", "empty", "too-much"])
def test_a_model_that_does_not_want_to_is_no_server_that_fails(run: Run, behaviour: str) -> None:
    run.server = LlmServerState(Circuit(max_failures=1))
    for _ in range(2):
        with pytest.raises(DomainError) as raised:
            run.model(behaviour).ask(question())
        assert raised.value.code == "llm.failed"
    assert run.calls == 2


def test_of_many_threads_one_tries(clock: Clock) -> None:
    circuit = Circuit(max_failures=1, pause_seconds=30.0, clock=clock)
    circuit.leave(Health.FAILS, is_probe=circuit.enter())
    clock.now += 31.0
    entered: list[bool] = []

    def enter() -> None:
        try:
            entered.append(circuit.enter())
        except CircuitOpen:
            entered.append(False)

    threads = [threading.Thread(target=enter) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(entered) == [False] * 15 + [True]


def test_calls_that_began_before_it_opened_neither_lengthen_the_pause_nor_try(
    clock: Clock,
) -> None:
    circuit = Circuit(max_failures=1, pause_seconds=30.0, clock=clock)
    early = circuit.enter()
    circuit.leave(Health.FAILS, is_probe=circuit.enter())
    clock.now += 20.0
    circuit.leave(Health.FAILS, is_probe=early)
    clock.now += 11.0
    assert circuit.enter()


def test_a_try_that_told_nothing_lets_the_next_one_try(clock: Clock) -> None:
    circuit = Circuit(max_failures=1, pause_seconds=30.0, clock=clock)
    circuit.leave(Health.FAILS, is_probe=circuit.enter())
    clock.now += 31.0
    circuit.leave(Health.UNKNOWN, is_probe=circuit.enter())
    assert circuit.enter()
