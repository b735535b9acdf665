import pytest

from core.errors import DomainError
from tests.language_model import SCHEMA, Run, answered, question

SCHEMA_FORM, OBJECT_FORM, PROMPT_FORM = "json_schema", "json_object", "prompt"


def ask(run: Run, behaviour: str = "") -> str:
    return answered(run.model(behaviour).ask(question()).text)


def test_a_schema_is_asked_for_first_and_strictly(run: Run) -> None:
    ask(run)
    given = run.requests[0]["response_format"]
    assert given["type"] == SCHEMA_FORM
    assert given["json_schema"] == {"name": "summary", "strict": True, "schema": SCHEMA}


def test_json_mode_is_next_with_the_schema_in_the_prompt(run: Run) -> None:
    assert "Bees live" in ask(run, "no-schema")
    assert run.forms == [SCHEMA_FORM, OBJECT_FORM]
    assert '"additionalProperties":false' in run.requests[1]["messages"][0]["content"]


def test_a_prompt_is_last(run: Run) -> None:
    assert "Bees live" in ask(run, "no-json-mode")
    assert run.forms == [SCHEMA_FORM, OBJECT_FORM, PROMPT_FORM]


@pytest.mark.parametrize(
    ("behaviour", "form"), [("no-schema", OBJECT_FORM), ("no-json-mode", PROMPT_FORM)]
)
def test_the_form_that_a_server_took_is_remembered(run: Run, behaviour: str, form: str) -> None:
    ask(run, behaviour)
    before = run.calls
    ask(run, behaviour)
    assert run.calls == before + 1
    assert run.forms[-1] == form


def test_the_newer_name_of_the_limit_is_found_and_remembered(run: Run) -> None:
    ask(run, "new-limit")
    ask(run, "new-limit")
    limits = ["max_tokens" in each for each in run.requests]
    assert limits == [True, False, False]
    assert run.requests[2]["max_completion_tokens"] > run.requests[0]["max_tokens"]
    assert run.forms == [SCHEMA_FORM] * 3


def test_a_server_that_takes_no_form_is_not_remembered_for_the_last(run: Run) -> None:
    run.steer("400")
    with pytest.raises(DomainError):
        ask(run)
    run.steer(None)
    ask(run)
    assert run.forms[-1] == SCHEMA_FORM


def test_a_question_that_is_too_long_is_not_asked_in_other_forms(run: Run) -> None:
    with pytest.raises(DomainError) as raised:
        ask(run, "too-much")
    assert raised.value.code == "llm.failed"
    assert run.calls == 1


def test_the_post_is_in_no_message_but_the_users(run: Run) -> None:
    for behaviour in ("", "no-json-mode"):
        ask(run, behaviour)
    for request in run.requests:
        roles = [each["role"] for each in request["messages"]]
        assert roles == ["system", "user"]
        assert "Bees" not in request["messages"][0]["content"]
