"""Tests of JSON bodies whose numbers are parsed exactly."""

import asyncio
import tracemalloc

import pytest
from starlette.requests import Request, empty_receive

from api.bodies.json_bodies import read_exact_json
from api.limits.body_budgets import BodyBudget
from api.middleware.body_limits import BODY_KEY, BoundedBody, find_body_limit
from api.schemas.credits import NewCharge
from core.errors import DomainError

MAX_EXTRA_MEMORY_BYTES = 4_000_000


@pytest.mark.parametrize("number", [b"1e308", b"1", b"9" * 30])
def test_body_with_too_many_exact_numbers_is_rejected_during_parsing(number: bytes) -> None:
    body = b'{"meta": [%b]}' % b",".join([number] * 100_000)
    tracemalloc.start()
    try:
        with pytest.raises(DomainError, match="at most 10000 numbers"):
            asyncio.run(read_charge(body))
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < len(body) + MAX_EXTRA_MEMORY_BYTES


async def read_charge(body: bytes) -> NewCharge:
    path = "/auxilia/credits/consume"
    bounded_body = BoundedBody(find_body_limit(path), empty_receive, BodyBudget())
    headers = [(b"content-type", b"application/json")]
    request = Request({"type": "http", "headers": headers, BODY_KEY: bounded_body})
    return await read_exact_json(request, body, NewCharge)
