import json
import logging
import threading
import time
import traceback
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from pydantic import SecretStr
from structlog.testing import capture_logs

from core.errors import DomainError, Kind
from devstack import LOOPBACK
from devstack.harness.polling import eventually
from integrations.http_client import parse_retry_after
from integrations.llm import openai_protocol
from integrations.llm.openai_protocol import LlmServerState, OpenAIProtocol
from tests.support.composer.language_model import (
    API_KEY,
    PRIVATE_WORD,
    SCHEMA,
    LanguageModelRun,
    build_question,
    ignore_usage,
)


def read_summary(text: str) -> str:
    """Return the summary in a JSON response of the language model."""
    return str(json.loads(text)["summary"])


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        *(("0", 0.0), ("1", 1.0), (" 2.5 ", 2.5), ("120", 120.0), ("99999", 3600.0)),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0),
    ],
)
def test_retry_after_is_parsed_as_seconds_or_date_and_capped_at_one_hour(
    header: str, seconds: float
) -> None:
    assert parse_retry_after(header) == seconds


@pytest.mark.parametrize(
    "header", [None, "", "soon", "-1", "nan", "inf", "1e999", "0x10", "Fri, 99 Nov 2026 00:00:00"]
)
def test_malformed_retry_after_is_ignored(header: str | None) -> None:
    assert parse_retry_after(header) is None


def test_retry_after_date_becomes_seconds_from_now() -> None:
    header = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    seconds = parse_retry_after(header)
    assert seconds is not None
    assert 30.0 < seconds <= 60.0


QUICK_FAILURES = [
    "",
    "refuses",
    "cut",
    "huge",
    "echo",
    "400",
    "401",
    "429-long",
    "no-json-mode",
    "trickle",
]


@pytest.mark.slow
@pytest.mark.parametrize("behaviour", QUICK_FAILURES)
def test_llm_errors_and_logs_contain_no_key_post_or_answer(
    model_run: LanguageModelRun, behaviour: str, caplog: pytest.LogCaptureFixture
) -> None:
    error_text = ""
    with capture_logs() as log_entries, caplog.at_level(logging.DEBUG):
        # The sandbox runs in this process, so the test also captures the sandbox's logs.
        try:
            model_run.model(behaviour).ask(build_question(2.0))
        except DomainError as error:
            error_text = "".join(traceback.format_exception(error)) + repr(vars(error))
    assert log_entries
    for text in (error_text, str(log_entries), caplog.text):
        for secret in (API_KEY, PRIVATE_WORD, "Bees live"):
            assert secret not in text


def test_llm_log_contains_the_reason_of_a_failure(model_run: LanguageModelRun) -> None:
    with capture_logs() as log_entries, pytest.raises(DomainError):
        model_run.model("401").ask(build_question())
    assert [each["reason"] for each in log_entries] == ["status 401"]


SCHEMA_FORMAT = "json_schema"
OBJECT_FORMAT = "json_object"
PROMPT_FORMAT = "prompt"


def ask_model(model_run: LanguageModelRun, behaviour: str = "") -> str:
    return read_summary(model_run.model(behaviour).ask(build_question()).text)


def test_llm_request_uses_strict_json_schema_first(model_run: LanguageModelRun) -> None:
    ask_model(model_run)
    response_format = model_run.requests[0]["response_format"]
    assert response_format["type"] == SCHEMA_FORMAT
    assert response_format["json_schema"] == {"name": "summary", "strict": True, "schema": SCHEMA}


@pytest.mark.parametrize(
    ("behaviour", "forms"),
    [
        ("no-schema", [SCHEMA_FORMAT, OBJECT_FORMAT]),
        ("no-json-mode", [SCHEMA_FORMAT, OBJECT_FORMAT, PROMPT_FORMAT]),
    ],
)
def test_llm_falls_back_to_simpler_formats_and_remembers_the_supported_one(
    model_run: LanguageModelRun, behaviour: str, forms: list[str]
) -> None:
    assert "Bees live" in ask_model(model_run, behaviour)
    assert model_run.forms == forms
    # The language model's server doesn't accept a JSON schema as a parameter, so the prompt
    # contains the schema.
    assert '"additionalProperties":false' in model_run.requests[1]["messages"][0]["content"]
    ask_model(model_run, behaviour)
    assert model_run.forms == [*forms, forms[-1]]


def test_llm_remembers_which_token_limit_parameter_the_server_accepts(
    model_run: LanguageModelRun,
) -> None:
    ask_model(model_run, "new-limit")
    ask_model(model_run, "new-limit")
    limits = ["max_tokens" in each for each in model_run.requests]
    assert limits == [True, False, False]
    assert model_run.requests[2]["max_completion_tokens"] > model_run.requests[0]["max_tokens"]
    assert model_run.forms == [SCHEMA_FORMAT] * 3


def test_llm_does_not_remember_a_format_if_the_server_rejects_all(
    model_run: LanguageModelRun,
) -> None:
    model_run.steer("400")
    with pytest.raises(DomainError):
        ask_model(model_run)
    model_run.steer(None)
    ask_model(model_run)
    assert model_run.forms[-1] == SCHEMA_FORMAT


def test_llm_request_that_is_too_long_is_not_repeated_in_other_formats(
    model_run: LanguageModelRun,
) -> None:
    with pytest.raises(DomainError) as raised:
        ask_model(model_run, "too-much")
    assert raised.value.code == "llm.failed"
    assert model_run.calls == 1


def test_llm_request_contains_the_post_only_in_the_user_message(
    model_run: LanguageModelRun,
) -> None:
    for behaviour in ("", "no-json-mode"):
        ask_model(model_run, behaviour)
    for request in model_run.requests:
        roles = [each["role"] for each in request["messages"]]
        assert roles == ["system", "user"]
        assert "Bees" not in request["messages"][0]["content"]


# A call must time out within this time, even on a busy machine. Without a timeout, the call would
# take a minute, because the sandbox's slow reply takes a minute.
HANG_SECONDS = 50.0


def ask_and_get_error(
    model_run: LanguageModelRun, behaviour: str, seconds: float = 20.0
) -> DomainError:
    with pytest.raises(DomainError) as raised:
        model_run.model(behaviour).ask(build_question(seconds))
    return raised.value


def test_llm_request_sends_the_api_key_only_if_configured(model_run: LanguageModelRun) -> None:
    model_run.model().ask(build_question())
    model_run.model(key=None).ask(build_question())
    first, second = model_run.requests
    assert first["_headers"]["authorization"] == f"Bearer {API_KEY}"
    assert "authorization" not in second["_headers"]


def test_llm_client_ignores_openai_and_proxy_variables_of_the_environment(
    model_run: LanguageModelRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, "of-somebody-else")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    model_run.model(key=None).ask(build_question())
    assert "of-somebody-else" not in str(model_run.requests)


@pytest.mark.parametrize(
    "behaviour", ["refuses", "empty", "length", "filtered", "cut", "broken", "page", "400", "401"]
)
def test_unusable_llm_answer_is_reported_as_failure(
    model_run: LanguageModelRun, behaviour: str
) -> None:
    error = ask_and_get_error(model_run, behaviour)
    assert (error.kind, error.code) == (Kind.PROVIDER_FAILED, "llm.failed")


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ([{"type": "text", "text": "a"}, {"type": "output_text", "text": "b"}, "c"], "abc"),
        ([{"type": "reasoning", "text": "no"}, {"text": "yes"}], "yes"),
        ([{"type": "thinking", "thinking": [{"type": "text", "text": "no"}]}, "yes"], "yes"),
        ([{"text": "no", "thought": True}, {"type": ["text"], "text": "no"}, "yes"], "yes"),
        ([1, None, [], {}, {"type": "text"}, {"type": "text", "text": 1}, "yes"], "yes"),
    ],
)
def test_llm_answer_consists_only_of_text_parts(content: list[object], text: str) -> None:
    body = json.dumps({"choices": [{"message": {"content": content}}]}).encode()
    assert openai_protocol.parse_completion(body).reply("any").text == text


@pytest.mark.parametrize("behaviour", ["slow", "trickle"])
def test_llm_call_times_out_and_closes_its_connection(
    model_run: LanguageModelRun, behaviour: str
) -> None:
    start = time.monotonic()
    error = ask_and_get_error(model_run, behaviour, seconds=0.5)
    assert time.monotonic() - start < HANG_SECONDS
    assert (error.kind, error.code) == (Kind.TOO_SLOW, "llm.too_slow")
    if behaviour == "slow":
        eventually(lambda: model_run.left == 1, what="the caller's leaving")


def test_unreachable_llm_server_is_reported_as_unavailable() -> None:
    target = openai_protocol.Target(f"http://{LOOPBACK}:1/v1", SecretStr(API_KEY))
    model = OpenAIProtocol(
        target, LlmServerState(), model="any", context_tokens=32_000, report=ignore_usage
    )
    with pytest.raises(DomainError) as raised:
        model.ask(build_question())
    assert (raised.value.kind, raised.value.code) == (Kind.UNAVAILABLE, "llm.unavailable")


@pytest.mark.slow
@pytest.mark.parametrize("behaviour", ["429-once", "429-date-once", "500-once", "502-once"])
def test_llm_call_is_retried_after_transient_failure(
    model_run: LanguageModelRun, behaviour: str
) -> None:
    assert "Bees live" in read_summary(model_run.model(behaviour).ask(build_question()).text)
    assert model_run.calls == 2


@pytest.mark.parametrize(
    ("behaviour", "kind"), [("500", Kind.PROVIDER_FAILED), ("503", Kind.UNAVAILABLE)]
)
def test_llm_call_is_retried_only_once(
    model_run: LanguageModelRun, behaviour: str, kind: Kind
) -> None:
    assert ask_and_get_error(model_run, behaviour).kind is kind
    assert model_run.calls == 2


def test_llm_retry_waits_for_the_servers_retry_after(model_run: LanguageModelRun) -> None:
    start = time.monotonic()
    model_run.model("429-once").ask(build_question())
    assert time.monotonic() - start >= 1.0


def test_llm_retry_after_beyond_the_time_limit_is_returned_to_the_caller(
    model_run: LanguageModelRun,
) -> None:
    error = ask_and_get_error(model_run, "429-long")
    assert (error.kind, error.code) == (Kind.UNAVAILABLE, "llm.unavailable")
    assert error.retry_after == 120
    assert model_run.calls == 1


def test_llm_token_usage_is_reported_for_useful_useless_and_failed_answers(
    model_run: LanguageModelRun,
) -> None:
    reply = model_run.model().ask(build_question())
    ask_and_get_error(model_run, "refuses")
    ask_and_get_error(model_run, "401")
    useful, useless, failed = model_run.usages
    assert (useful.outcome, useless.outcome, failed.outcome) == ("answered", "failed", "failed")
    assert (useful.tokens_in, useful.tokens_out) == (reply.tokens_in, reply.tokens_out)
    assert useless.tokens_in > 0
    assert failed.tokens_in == 0


@pytest.mark.tier("timing")
def test_llm_calls_run_concurrently(model_run: LanguageModelRun) -> None:
    def ask_model() -> None:
        with pytest.raises(DomainError):
            model_run.model("slow").ask(build_question(5.0))

    model_run.server = LlmServerState(openai_protocol.create_breaker(tolerated=99))
    threads = [threading.Thread(target=ask_model) for _ in range(8)]
    for thread in threads:
        thread.start()
    eventually(lambda: model_run.calls == 8, within=4.9, what="eight calls at the same time")
    for thread in threads:
        thread.join()
