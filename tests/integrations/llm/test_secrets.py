import logging
import traceback

import pytest
from structlog.testing import capture_logs

from core.errors import DomainError
from tests.language_model import KEY, PRIVATE, Run, question

QUICK = ["", "refuses", "cut", "huge", "echo", "400", "401", "429-long", "no-json-mode", "trickle"]


@pytest.mark.slow
@pytest.mark.parametrize("behaviour", QUICK)
def test_neither_key_nor_post_nor_answer_is_in_errors_or_logs(
    run: Run, behaviour: str, caplog: pytest.LogCaptureFixture
) -> None:
    told = ""
    with capture_logs() as ours, caplog.at_level(logging.DEBUG):
        # The sandbox runs in this process, and isn't what is watched here.
        try:
            run.model(behaviour).ask(question(2.0))
        except DomainError as error:
            told = "".join(traceback.format_exception(error)) + repr(vars(error))
    assert ours
    for text in (told, str(ours), caplog.text):
        for secret in (KEY, PRIVATE, "Bees live"):
            assert secret not in text


def test_the_log_says_how_many_tokens_it_took(run: Run) -> None:
    with capture_logs() as ours:
        reply = run.model().ask(question())
    [line] = [each for each in ours if each["event"] == "language model answered"]
    assert (line["tokens_in"], line["tokens_out"]) == (reply.tokens_in, reply.tokens_out)


def test_the_log_says_why_it_failed(run: Run) -> None:
    with capture_logs() as ours, pytest.raises(DomainError):
        run.model("401").ask(question())
    assert [each["reason"] for each in ours] == ["status 401"]
