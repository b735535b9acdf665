import threading
import time

import pytest
from pydantic import SecretStr
from structlog.testing import capture_logs

from core.errors import DomainError, Kind
from devstack import LOOPBACK
from integrations.llm import wire
from integrations.llm.circuit import Circuit
from integrations.llm.openai_protocol import LlmServerState, OpenAIProtocol
from tests.language_model import KEY, Run, answered, ignore_usage, question
from tests.stack import eventually

# Whatever the machine does meanwhile: the stand-in is slow for a minute.
HANGING = 50.0


def refused(run: Run, behaviour: str, seconds: float = 20.0) -> DomainError:
    with pytest.raises(DomainError) as raised:
        run.model(behaviour).ask(question(seconds))
    return raised.value


def test_an_answer_comes_with_its_model_and_its_tokens(run: Run) -> None:
    reply = run.model().ask(question())
    assert "Bees live" in answered(reply.text)
    assert reply.model == "sandbox"
    assert reply.tokens_in > 0
    assert reply.tokens_out > 0


def test_it_is_named_as_in_pressroom_source(run: Run) -> None:
    assert run.model().name == "openai/sandbox"


def test_the_key_is_sent_and_nothing_in_its_place_when_there_is_none(run: Run) -> None:
    run.model().ask(question())
    run.model(key=None).ask(question())
    first, second = run.requests
    assert first["_headers"]["authorization"] == f"Bearer {KEY}"
    assert "authorization" not in second["_headers"]


def test_variables_for_other_programs_change_nothing(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, "of-somebody-else")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    run.model(key=None).ask(question())
    assert "of-somebody-else" not in str(run.requests)


@pytest.mark.parametrize(
    "behaviour", ["refuses", "empty", "length", "filtered", "cut", "broken", "page", "400", "401"]
)
def test_what_is_no_answer_fails_at_once(run: Run, behaviour: str) -> None:
    error = refused(run, behaviour)
    assert (error.kind, error.code) == (Kind.PROVIDER_FAILED, "llm.failed")


@pytest.mark.parametrize(
    ("behaviour", "reason"), [("huge", "reply too long"), ("compressed", "compressed reply")]
)
def test_a_reply_that_may_be_more_than_an_answer_is_not_read(
    run: Run, behaviour: str, reason: str
) -> None:
    with capture_logs() as logged:
        assert refused(run, behaviour).code == "llm.failed"
    assert [each["reason"] for each in logged] == [reason]


def test_a_redirect_is_not_followed(run: Run) -> None:
    assert refused(run, "redirect").code == "llm.failed"
    assert Run(run.sandbox, "redirected").calls == 0


@pytest.mark.parametrize("behaviour", ["slow", "trickle"])
def test_a_call_ends_in_its_time_and_hangs_up(run: Run, behaviour: str) -> None:
    began = time.monotonic()
    error = refused(run, behaviour, seconds=0.5)
    assert time.monotonic() - began < HANGING
    assert (error.kind, error.code) == (Kind.TOO_SLOW, "llm.too_slow")
    if behaviour == "slow":
        eventually(lambda: run.left == 1, what="the caller's leaving")


def test_a_server_that_is_away_is_unavailable() -> None:
    target = wire.Target(f"http://{LOOPBACK}:1/v1", SecretStr(KEY))
    model = OpenAIProtocol(
        target, LlmServerState(), model="any", context_tokens=32_000, report=ignore_usage
    )
    with pytest.raises(DomainError) as raised:
        model.ask(question())
    assert (raised.value.kind, raised.value.code) == (Kind.UNAVAILABLE, "llm.unavailable")


@pytest.mark.slow
@pytest.mark.parametrize("behaviour", ["429-once", "429-date-once", "500-once", "502-once"])
def test_what_may_pass_is_tried_once_more(run: Run, behaviour: str) -> None:
    assert "Bees live" in answered(run.model(behaviour).ask(question()).text)
    assert run.calls == 2


@pytest.mark.parametrize(
    ("behaviour", "kind"), [("500", Kind.PROVIDER_FAILED), ("503", Kind.UNAVAILABLE)]
)
def test_there_is_no_third_try(run: Run, behaviour: str, kind: Kind) -> None:
    assert refused(run, behaviour).kind is kind
    assert run.calls == 2


def test_the_second_try_waits_as_long_as_the_server_asks_for(run: Run) -> None:
    began = time.monotonic()
    run.model("429-once").ask(question())
    assert time.monotonic() - began >= 1.0


def test_a_wait_that_does_not_fit_is_handed_on(run: Run) -> None:
    error = refused(run, "429-long")
    assert (error.kind, error.code) == (Kind.UNAVAILABLE, "llm.unavailable")
    assert error.retry_after == 120
    assert run.calls == 1


def test_tokens_are_reported_whether_or_not_the_answer_is_of_use(run: Run) -> None:
    reply = run.model().ask(question())
    refused(run, "refuses")
    refused(run, "401")
    useful, useless, failed = run.usages
    assert (useful.outcome, useless.outcome, failed.outcome) == ("answered", "failed", "failed")
    assert (useful.tokens_in, useful.tokens_out) == (reply.tokens_in, reply.tokens_out)
    assert useless.tokens_in > 0
    assert failed.tokens_in == 0


@pytest.mark.full("timing")
def test_calls_do_not_take_turns(run: Run) -> None:
    def ask() -> None:
        with pytest.raises(DomainError):
            run.model("slow").ask(question(5.0))

    run.server = LlmServerState(Circuit(max_failures=100))
    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    eventually(lambda: run.calls == 8, within=4.9, what="eight calls at the same time")
    for thread in threads:
        thread.join()
