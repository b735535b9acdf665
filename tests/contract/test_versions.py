"""Each answer says of which version of the contract it is, and a call may ask for one."""

import asyncio
from datetime import date
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from api.access.requirements import PUBLIC
from api.app import create_app
from api.bodies.json_route import JsonRoute
from api.document.deprecations import deprecated
from api.middleware.versions import VERSIONS
from api.schemas.envelope import Body
from tests.contract.replies import data, problem
from tests.stack import Stack

VERSION = "Pressroom-Version"


def test_every_answer_of_the_api_says_its_version(
    client: httpx.Client, stranger: httpx.Client
) -> None:
    for reply in (
        client.get("/users/me"),
        client.get("/healthz"),
        client.get("/nowhere"),
        client.delete("/users/me"),
        client.post("/lists", content=b"{", headers={"Content-Type": "application/json"}),
        client.post("/lists", json={}),
        client.post("/oauth/token", data={}),
        client.get("/openapi.json"),
        client.head("/users/me"),
        stranger.get("/users/me"),
    ):
        assert reply.headers.get_list(VERSION) == [VERSIONS[0]], reply.request.url


def test_a_page_for_people_has_no_version(stranger: httpx.Client) -> None:
    for headers in ({}, {VERSION: "1999-01-01"}):
        reply = stranger.get("/login", headers=headers)
        assert reply.status_code == 200
        assert VERSION not in reply.headers


@pytest.mark.parametrize("version", VERSIONS)
def test_a_call_may_ask_for_a_version(client: httpx.Client, version: str) -> None:
    reply = client.get("/users/me", headers={VERSION: version})
    data(reply)
    assert reply.headers[VERSION] == version


@pytest.mark.parametrize(
    "asked", ["1999-01-01", "2999-01-01", "2026-11-20", "latest", "", "2026-11-21, 2026-11-21", "é"]
)
def test_an_unknown_version_is_refused_with_those_that_are_known(
    client: httpx.Client, asked: str
) -> None:
    sent = httpx.Headers({VERSION: asked}, encoding="utf-8")
    refused = problem(client.post("/lists", json={}, headers=sent), 400, "version.unknown")
    for version in VERSIONS:
        assert version in refused["message"]


def test_two_versions_at_once_are_refused(client: httpx.Client) -> None:
    both = [(VERSION, VERSIONS[0]), (VERSION, "1999-01-01")]
    problem(client.get("/users/me", headers=both), 400, "version.unknown")


def test_versions_are_dates_with_the_newest_first() -> None:
    assert [str(date.fromisoformat(each)) for each in VERSIONS] == sorted(VERSIONS, reverse=True)


# -- operations that will end --------------------------------------------------------------------


class _Name(Body):
    name: str


@pytest.fixture
def ending(stack: Stack) -> FastAPI:
    """The application with an operation that ends in a year; today we have none."""
    app = create_app(stack.settings())
    app.router.route_class = JsonRoute
    tells = deprecated(
        since=date(2026, 11, 21), sunset=date(2027, 11, 21), instead="Call `create_list` instead."
    )

    @app.post("/ending", dependencies=[PUBLIC, tells])
    async def end_something(body: _Name) -> dict[str, str]:
        """End something."""
        return {"name": body.name}

    return app


async def _post(app: FastAPI, **content: Any) -> httpx.Response:
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://test") as client,
    ):
        return await client.post("/ending", **content)


@pytest.mark.parametrize(
    ("content", "status"),
    [({"json": {"name": "a"}}, 200), ({"json": {}}, 422), ({"content": b"x"}, 415)],
)
def test_an_operation_that_will_end_says_so_in_each_answer(
    ending: FastAPI, content: dict[str, Any], status: int
) -> None:
    reply = asyncio.run(_post(ending, **content))
    assert reply.status_code == status
    # RFC 9745 and RFC 8594: a structured date, and an HTTP date.
    assert reply.headers.get_list("deprecation") == ["@1795219200"]
    assert reply.headers.get_list("sunset") == ["Sun, 21 Nov 2027 00:00:00 GMT"]


def test_the_document_marks_an_operation_that_will_end(ending: FastAPI) -> None:
    operation = ending.openapi()["paths"]["/ending"]["post"]
    assert operation["deprecated"] is True
    assert "it ends on 2027-11-21. Call `create_list` instead." in operation["description"]
    assert not any(
        each.get("deprecated")
        for path, methods in ending.openapi()["paths"].items()
        for each in methods.values()
        if path != "/ending"
    )


def test_an_end_that_is_too_soon_is_refused_where_it_is_declared() -> None:
    with pytest.raises(ValueError, match="365 days"):
        deprecated(since=date(2026, 11, 21), sunset=date(2027, 5, 1), instead="")
