from dataclasses import replace

import pytest

from core.calls import breaker
from core.errors import DomainError, Kind
from integrations.llm import openai_protocol
from integrations.llm.openai_protocol import LlmServerState
from tests.support.composer.language_model import LanguageModelRun, build_question


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    fake_clock = Clock()
    monkeypatch.setattr(breaker, "time", fake_clock)
    return fake_clock


@pytest.fixture
def run_with_open_circuit(model_run: LanguageModelRun, clock: Clock) -> LanguageModelRun:
    """A client of the language model whose circuit breaker is open after three failed calls.

    An open circuit breaker prevents calls for 30 seconds.
    """
    model_run.server = LlmServerState(openai_protocol.create_breaker(tolerated=2))
    model_run.steer("broken")
    for _ in range(3):
        assert ask_and_get_error(model_run).code == "llm.failed"
    return model_run


def ask_and_get_error(model_run: LanguageModelRun) -> DomainError:
    with pytest.raises(DomainError) as raised:
        model_run.model().ask(build_question())
    return raised.value


def test_open_llm_circuit_rejects_calls_without_asking_the_server(
    run_with_open_circuit: LanguageModelRun,
) -> None:
    error = ask_and_get_error(run_with_open_circuit)
    assert (error.kind, error.code, error.retry_after) == (Kind.UNAVAILABLE, "llm.unavailable", 30)
    assert run_with_open_circuit.calls == 3


def test_llm_circuit_stays_closed_if_answers_come_between_failures(
    model_run: LanguageModelRun,
) -> None:
    model_run.server = LlmServerState(openai_protocol.create_breaker(tolerated=1))
    for behaviour in ("broken", None, "broken", None, "broken"):
        model_run.steer(behaviour)
        if behaviour is None:
            model_run.model().ask(build_question())
        else:
            assert ask_and_get_error(model_run).code == "llm.failed"


@pytest.mark.parametrize("behaviour", ["refuses", "empty", "too-much"])
def test_llm_circuit_does_not_count_refusals_and_empty_answers_as_failures(
    model_run: LanguageModelRun, behaviour: str
) -> None:
    model_run.server = LlmServerState(openai_protocol.create_breaker(tolerated=0))
    for _ in range(2):
        with pytest.raises(DomainError) as raised:
            model_run.model(behaviour).ask(build_question())
        assert raised.value.code == "llm.failed"
    assert model_run.calls == 2


def test_interrupted_trial_call_of_open_llm_circuit_allows_another_trial(
    run_with_open_circuit: LanguageModelRun, clock: Clock
) -> None:
    clock.now += 31.0

    def interrupt() -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        run_with_open_circuit.model().ask(replace(build_question(), before_sending=interrupt))
    assert ask_and_get_error(run_with_open_circuit).code == "llm.failed"
    assert ask_and_get_error(run_with_open_circuit).code == "llm.unavailable"
    assert run_with_open_circuit.calls == 4
