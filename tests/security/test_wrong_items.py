"""Requests in which a list or dictionary contains as many invalid items as fit into the body."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import httpx2
import orjson
import pytest
from pydantic import ValidationError

from api.middleware.body_limits import find_body_limit
from api.schemas.envelope import Body
from devstack.harness.stack import Stack
from tests.support.http.openapi import openapi_document
from tests.support.http.replies import problem
from tests.support.sizes import sized

MAX_BODY_BYTES = 2_000_000
MAX_ANSWER_BYTES = 64 * 1024
# Before the number of errors was limited, the slowest health check took 15 seconds.
MAX_HEALTH_SECONDS = 3
JSON = {"Content-Type": "application/json"}

Schema = dict[str, Any]


@dataclass(frozen=True)
class Place:
    """A list or a dictionary in the body of an operation, such as ``filter.all``."""

    operation: str
    names: tuple[str, ...]
    schema: Schema

    @property
    def is_list(self) -> bool:
        return bool(self.schema["type"] == "array")

    @property
    def max_items(self) -> int | None:
        return self.schema.get("maxItems" if self.is_list else "maxProperties")

    def bodies(self) -> Iterator[bytes]:
        """Yield a request body with as many invalid items as the maximum body size permits.

        If the API documents a maximum number of items for the list or dictionary, yield a second
        request body with exactly this number of items.
        """
        max_bytes = min(MAX_BODY_BYTES, find_body_limit(self.operation.split()[1]).max_bytes)
        yield self._body((max_bytes - 100) // (2 if self.is_list else 12))
        if self.max_items:
            yield self._body(self.max_items)

    def _body(self, items: int) -> bytes:
        value: Any = [1] * items if self.is_list else {f"k{n:05}": [] for n in range(items)}
        for name in reversed(self.names):
            value = {name: value}
        return orjson.dumps(value)


def places() -> Iterator[Place]:
    """Find every list and dictionary in a body that the document describes."""
    document = openapi_document()
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            content = operation.get("requestBody", {}).get("content", {})
            schema = content.get("application/json", {}).get("schema")
            if schema is not None:
                name = f"{method.upper()} {path}"
                yield from (Place(name, *each) for each in _containers(document, schema, ()))


def _containers(
    document: Schema, schema: Schema, names: tuple[str, ...], seen: frozenset[str] = frozenset()
) -> Iterator[tuple[tuple[str, ...], Schema]]:
    if (reference := schema.get("$ref")) is not None:
        if reference in seen:
            return
        seen |= {reference}
        schema = document["components"]["schemas"][reference.rpartition("/")[2]]
    for part in schema.get("anyOf", ()):
        yield from _containers(document, part, names, seen)
    if schema.get("type") == "array" or (
        schema.get("type") == "object" and "properties" not in schema
    ):
        yield names, schema
    for name, part in schema.get("properties", {}).items():
        yield from _containers(document, part, (*names, name), seen)


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
def test_many_invalid_items_get_a_short_error_while_the_api_stays_responsive(
    stack: Stack, client: httpx2.Client, list_id: int, capsys: pytest.CaptureFixture[str]
) -> None:
    values = {"list_id": list_id, "part": "thanks", "hash_id": "a" * 12, "user_id": 1}
    figures = []
    with watched_health(stack) as seconds:
        for place in chosen_places():
            method, path = place.operation.split()
            address = path.format_map(Values(values))
            for body in place.bodies():
                began_at = time.monotonic()
                reply = client.request(method, address, content=body, headers=JSON)
                figures.append((time.monotonic() - began_at, len(reply.content), place.operation))
                assert reply.is_client_error, place
                assert len(reply.content) <= MAX_ANSWER_BYTES, place
    slowest = max(figures, key=itemgetter(0))
    largest = max(figures, key=itemgetter(1))
    with capsys.disabled():
        sys.stdout.write(
            f"\n{len(figures)} bodies of wrong items: the largest answer has {largest[1]} bytes "
            f"({largest[2]}), the slowest takes {slowest[0]:.2f} s ({slowest[2]}), /healthz takes "
            f"{max(seconds):.2f} s\n"
        )
    assert max(seconds) < MAX_HEALTH_SECONDS


class Values(dict[str, object]):
    """Maps names of path parameters to values. The default value of a path parameter is 1."""

    def __missing__(self, _: str) -> int:
        return 1


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


@contextmanager
def watched_health(stack: Stack) -> Iterator[list[float]]:
    """Call `/healthz` again and again during the block, and list the durations of the calls."""
    seconds: list[float] = []
    ended = threading.Event()

    def watch() -> None:
        with stack.client() as client:
            while not ended.wait(0.02):
                began_at = time.monotonic()
                client.get("/healthz")
                seconds.append(time.monotonic() - began_at)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield seconds
    finally:
        ended.set()
        watcher.join()
