"""Tests that the OpenAPI document describes all responses to random valid and invalid requests."""

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
    result.ok().label: result.ok()  # type: ignore[union-attr]
    for result in SCHEMA.get_all_operations()
}
# The number of random calls to each API operation that has parameters.
CALLS_PER_OPERATION = sized(3, 600)
MIN_TOTAL_CALLS = sized(200, 20_000)
CALL_COUNTS: Counter[str] = Counter()
# The API operations that respond only after a worker has run a job. The worker may be busy with the
# jobs of other calls.
SLOW_OPERATIONS = {
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
    world = worlds.build(stack)
    yield world
    world.client.close()


@pytest.fixture
def owner_session(stack: Stack, sample_account: World) -> Iterator[requests.Session]:
    """An HTTP session with a new API key for each test, because fuzzed calls may delete it."""
    with requests.Session() as owner_session:
        owner_session.headers["Authorization"] = (
            f"Bearer {stack.create_key(sample_account.owner.user_id)}"
        )
        yield owner_session


def cases(operation: Any, existing_ids: dict[str, Any]) -> st.SearchStrategy[Case[Any]]:
    """Return a Hypothesis strategy that generates valid and invalid requests of an operation.

    Some of the generated requests contain existing ids, because requests with unknown ids test only
    the response 404.
    """
    strategies = [operation.as_strategy(generation_mode=GenerationMode.POSITIVE)]
    if existing_ids:
        strategies.append(operation.as_strategy(path_parameters=existing_ids))
    if operation.query or operation.body:
        strategies.append(operation.as_strategy(generation_mode=GenerationMode.NEGATIVE))
    return st.one_of(strategies)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("label", OPERATIONS)
def test_fuzzed_calls_get_only_documented_answers(
    stack: Stack, sample_account: World, owner_session: requests.Session, label: str
) -> None:
    operation = OPERATIONS[label]
    parameters = {each.name for each in operation.path_parameters}
    existing_ids = {
        name: value for name, value in sample_account.values.items() if name in parameters
    }

    @settings(
        max_examples=CALLS_PER_OPERATION,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases(operation, existing_ids if set(existing_ids) == parameters else {}))
    def call_operation(case: Case[Any]) -> None:
        headers = {"Prefer": "respond-async" if label in SLOW_OPERATIONS else "wait=5"}
        reply = case.call(
            base_url=stack.api_url, session=owner_session, headers=headers, timeout=30, verify=False
        )
        CALL_COUNTS[label] += 1
        assert reply.status_code != 500, reply.text
        case.validate_response(reply, checks=CHECKS)

    call_operation()


@pytest.mark.stack
def test_fuzzing_makes_the_planned_number_of_calls() -> None:
    if len(CALL_COUNTS) < len(OPERATIONS):
        pytest.skip("only some of the operations were chosen for this run")
    assert CALL_COUNTS.total() >= MIN_TOTAL_CALLS
