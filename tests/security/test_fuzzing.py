"""Any input gets an answer: what the OpenAPI document allows and what it doesn't, never a 500."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import requests
import schemathesis.openapi
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.specs.openapi import checks

from devstack.harness.stack import Stack
from tests.support.http.openapi import openapi_document
from tests.support.security import world as worlds
from tests.support.security.world import World
from tests.support.sizes import sized

SCHEMA = schemathesis.openapi.from_dict(openapi_document())
OPERATIONS: dict[str, Any] = {
    found.ok().label: found.ok()  # type: ignore[union-attr]
    for found in SCHEMA.get_all_operations()
}
# Those that take nothing are called once.
CALLS_EACH = sized(3, 600)
CALLS_IN_ALL = sized(200, 20_000)
CALLED: Counter[str] = Counter()
# Its answer waits for a worker, which other calls keep busy.
SLOW = {
    "POST /attachments",
    "POST /lists/{list_id}/imports",
    "POST /lists/{list_id}/exports",
    "POST /auxilia/subscriptions/{list_id}/members/add",
}
CHECKS = [
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
]


@pytest.fixture(scope="module")
def sample_account(stack: Stack) -> Iterator[World]:
    """An account that owns one object of each kind that API calls can name."""
    made = worlds.build(stack)
    yield made
    made.client.close()


@pytest.fixture
def owner_session(stack: Stack, sample_account: World) -> Iterator[requests.Session]:
    """An HTTP session with a new API key for each test, because fuzzed calls may delete it."""
    with requests.Session() as owner_session:
        owner_session.headers["Authorization"] = (
            f"Bearer {stack.create_key(sample_account.owner.user_id)}"
        )
        yield owner_session


def cases(operation: Any, real: dict[str, Any]) -> st.SearchStrategy[Case[Any]]:
    """Right and wrong requests; some about things that exist, so that they go further."""
    ways = [operation.as_strategy(generation_mode=GenerationMode.POSITIVE)]
    if real:
        ways.append(operation.as_strategy(path_parameters=real))
    if operation.query or operation.body:
        ways.append(operation.as_strategy(generation_mode=GenerationMode.NEGATIVE))
    return st.one_of(ways)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("label", OPERATIONS)
def test_fuzzed_calls_get_only_documented_answers(
    stack: Stack, sample_account: World, owner_session: requests.Session, label: str
) -> None:
    operation = OPERATIONS[label]
    named = {each.name for each in operation.path_parameters}
    real = {name: value for name, value in sample_account.values.items() if name in named}

    @settings(
        max_examples=CALLS_EACH,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases(operation, real if set(real) == named else {}))
    def answers(case: Case[Any]) -> None:
        headers = {"Prefer": "respond-async" if label in SLOW else "wait=5"}
        reply = case.call(
            base_url=stack.api_url, session=owner_session, headers=headers, timeout=30, verify=False
        )
        CALLED[label] += 1
        assert reply.status_code != 500, reply.text
        case.validate_response(reply, checks=CHECKS)

    answers()


@pytest.mark.stack
def test_fuzzing_makes_the_planned_number_of_calls() -> None:
    if len(CALLED) < len(OPERATIONS):
        pytest.skip("only some of the operations were chosen for this run")
    assert CALLED.total() >= CALLS_IN_ALL
