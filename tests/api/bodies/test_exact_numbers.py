"""Tests of JSON bodies whose numbers are parsed exactly."""

import tracemalloc

import pytest
from starlette.requests import Request

from api.bodies.json_bodies import read_exact_json
from api.schemas.credits import NewCharge
from core.errors import DomainError

MAX_EXTRA_MEMORY_BYTES = 4_000_000


@pytest.mark.parametrize("number", [b"1e308", b"1", b"9" * 30])
def test_body_with_too_many_exact_numbers_is_rejected_during_parsing(number: bytes) -> None:
    request = Request({"type": "http", "headers": [(b"content-type", b"application/json")]})
    body = b'{"meta": [%b]}' % b",".join([number] * 100_000)
    tracemalloc.start()
    try:
        with pytest.raises(DomainError, match="at most 10000 numbers"):
            read_exact_json(request, body, NewCharge)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < len(body) + MAX_EXTRA_MEMORY_BYTES
