"""Tests of the HTTP statuses that make mail providers retry requests with reports."""

import asyncio
from typing import Any

import httpx2
import pytest
from starlette.responses import Response

from api.middleware.intake_busy import IntakeBusyMiddleware

INTAKE_PATH = "/senders/7/events"
SNS_HEADERS = {"x-amz-sns-message-type": "Notification"}


def post(path: str, status: int, headers: dict[str, str]) -> httpx2.Response:
    """Post a request through the middleware to an app that responds with ``status``."""
    app = IntakeBusyMiddleware(Response(status_code=status))

    async def send() -> httpx2.Response:
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://api") as client:
            return await client.post(path, headers=headers)

    return asyncio.run(send())


@pytest.mark.parametrize(("headers", "expected_status"), [({}, 429), (SNS_HEADERS, 503)])
@pytest.mark.parametrize("status", [500, 503, 504])
def test_failed_or_late_intake_is_busy(
    status: int, headers: dict[str, Any], expected_status: int
) -> None:
    reply = post(INTAKE_PATH, status, headers)
    assert (reply.status_code, reply.json()["code"]) == (expected_status, "sender.busy")
    assert int(reply.headers["retry-after"]) > 0


@pytest.mark.parametrize("headers", [{}, SNS_HEADERS])
@pytest.mark.parametrize("status", [200, 401, 413, 422])
def test_accepted_or_invalid_call_has_the_same_status_for_sns(
    status: int, headers: dict[str, Any]
) -> None:
    assert post(INTAKE_PATH, status, headers).status_code == status


def test_sns_repeats_a_call_beyond_a_rate_limit() -> None:
    assert post(INTAKE_PATH, 429, {}).status_code == 429
    assert post(INTAKE_PATH, 429, SNS_HEADERS).status_code == 503


@pytest.mark.parametrize("path", ["/senders/7", "/senders/7/try", "/lists/7/senders/7/events"])
def test_other_routes_keep_their_statuses(path: str) -> None:
    assert post(path, 503, {}).status_code == 503
