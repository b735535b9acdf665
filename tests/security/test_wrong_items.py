"""Requests in which a list or dictionary contains as many invalid items as fit into the body."""

import sys
from operator import itemgetter

import httpx2
import pytest
from pydantic import ValidationError

from api.schemas.envelope import Body
from devstack.harness.stack import Stack
from tests.support.http.replies import problem
from tests.support.security.json_places import JSON, ApiUse, Place, Values, places
from tests.support.sizes import sized

MAX_ANSWER_BYTES = 64 * 1024
# Before the number of errors was limited, one body took 15 seconds.
MAX_CPU_SECONDS = 0.5

# The API documents no maximum number of items for these lists and dictionaries in request bodies.
# Pressroom can't limit webhooks and reports, because external providers define their formats. The
# dictionary ``meta`` may contain any JSON.
PLACES_WITHOUT_LIMIT = {
    ("POST /webhooks/stripe", ()),
    ("POST /senders/{sender_id}/events", ()),
    ("POST /auxilia/credits/consume", ("meta",)),
}


def test_every_list_and_dictionary_in_requests_has_a_documented_limit() -> None:
    without_limit = {(each.operation, each.names) for each in places() if each.max_items is None}
    assert without_limit == PLACES_WITHOUT_LIMIT


def test_request_items_are_counted_before_they_are_validated() -> None:
    schemas: list[type[Body]] = [*Body.__subclasses__()]
    for schema in schemas:
        schemas += schema.__subclasses__()
    checked = 0
    for schema in schemas:
        for name, documented in schema.model_json_schema()["properties"].items():
            for part in [documented, *documented.get("anyOf", ())]:
                if (limit := part.get("maxItems")) is not None:
                    assert codes_of(schema, name, [1] * (limit + 1)) == ["too_long"]
                    checked += 1
                elif (limit := part.get("maxProperties")) is not None:
                    entries = dict.fromkeys(map(str, range(limit + 1)), 1j)
                    assert codes_of(schema, name, entries) == ["too_long"]
                    checked += 1
    assert checked > 15


def codes_of(schema: type[Body], name: str, value: object) -> list[str]:
    """Return the codes of the errors of one field."""
    with pytest.raises(ValidationError) as error:
        schema.model_validate({name: value})
    return [each["type"] for each in error.value.errors() if each["loc"][0] == name]


def test_validation_errors_are_limited_to_one_hundred_plus_a_count_of_the_rest(
    client: httpx2.Client, list_id: int
) -> None:
    path = f"/auxilia/subscriptions/{list_id}/members/add"
    rows: list[object] = [{"email": "a@example.org"}] * 1_500 + [{"email": 1, "name": 2}] * 3_000
    body = problem(client.post(path, json={"members": rows}), 422, "body.invalid")
    assert len(body["errors"]) == 100
    assert body["omitted_errors"] == 5_900
    assert [each["field"] for each in body["errors"][:2]] == [
        "body.members[1500].email",
        "body.members[1500].name",
    ]
    few = problem(client.post(path, json={"members": [1]}), 422, "body.invalid")
    assert "omitted_errors" not in few


def test_long_names_are_truncated_in_validation_errors(
    stranger: httpx2.Client, list_id: int
) -> None:
    # In JSON, a control character takes six bytes.
    body = {"email": "a@example.org", "fields": {f"{n}" + "\1" * 200: [] for n in range(50)}}
    reply = stranger.post(f"/subscriptions/{list_id}", json=body)
    problem(reply, 422, "body.invalid")
    assert len(reply.content) < MAX_ANSWER_BYTES


@pytest.mark.tier("fast", "properties")
def test_many_invalid_items_get_a_short_error_with_little_work(
    stack: Stack, client: httpx2.Client, list_id: int, capsys: pytest.CaptureFixture[str]
) -> None:
    values = {"list_id": list_id, "part": "thanks", "hash_id": "a" * 12, "user_id": 1}
    use = ApiUse(stack)
    figures = []
    for place in chosen_places():
        method, path = place.operation.split()
        address = path.format_map(Values(values))
        for body in place.bodies():
            use.restart()
            reply = client.request(method, address, content=body, headers=JSON)
            figures.append((use.cpu_seconds, len(reply.content), place.operation))
            assert reply.is_client_error, place
            assert len(reply.content) <= MAX_ANSWER_BYTES, place
    slowest = max(figures, key=itemgetter(0))
    largest = max(figures, key=itemgetter(1))
    with capsys.disabled():
        sys.stdout.write(
            f"\n{len(figures)} bodies of wrong items: the largest answer has {largest[1]} bytes "
            f"({largest[2]}), the slowest takes {slowest[0]:.2f} s of CPU ({slowest[2]})\n"
        )
    for cpu_seconds, _, operation in figures:
        assert cpu_seconds < MAX_CPU_SECONDS, operation


def chosen_places() -> list[Place]:
    """Return every list and dictionary in the request bodies of all operations.

    In `make test`, the function saves time: if several operations have a list or dictionary with
    the same field name, the function returns the list or dictionary of only one operation.
    """
    places_by_key: dict[object, Place] = {}
    for place in places():
        is_per_operation = sized(1, 1, few=0)
        key = (place.names, place.operation if is_per_operation else None)
        places_by_key.setdefault(key, place)
    return [*places_by_key.values()]
