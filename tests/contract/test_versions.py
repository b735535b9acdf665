"""Each answer says of which version of the contract it is, and a call may ask for one."""

import httpx2
import pytest

from api.middleware.headers import VERSIONS
from tests.contract.replies import data, problem

VERSION = "Pressroom-Version"


def test_every_answer_of_the_api_says_its_version(
    client: httpx2.Client, stranger: httpx2.Client
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
        # The oldest: for which one a program was written that asks for none is unknown.
        assert reply.headers.get_list(VERSION) == [VERSIONS[-1]], reply.request.url


def test_a_page_for_people_has_no_version(stranger: httpx2.Client) -> None:
    for headers in ({}, {VERSION: "1999-01-01"}):
        reply = stranger.get("/login", headers=headers)
        assert reply.status_code == 200
        assert VERSION not in reply.headers


@pytest.mark.parametrize("version", VERSIONS)
def test_a_call_may_ask_for_a_version(client: httpx2.Client, version: str) -> None:
    reply = client.get("/users/me", headers={VERSION: version})
    data(reply)
    assert reply.headers[VERSION] == version


def test_an_unknown_version_is_refused_with_those_that_are_known(client: httpx2.Client) -> None:
    for asked in ["1999-01-01", "2999-01-01", "latest", "", f"{VERSIONS[0]}, {VERSIONS[0]}", "é"]:
        sent = httpx2.Headers({VERSION: asked}, encoding="utf-8")
        error = problem(client.post("/lists", json={}, headers=sent), 400, "version.unknown")
        for version in VERSIONS:
            assert version in error["message"]


def test_two_versions_at_once_are_refused(client: httpx2.Client) -> None:
    both = [(VERSION, VERSIONS[0]), (VERSION, "1999-01-01")]
    problem(client.get("/users/me", headers=both), 400, "version.unknown")
