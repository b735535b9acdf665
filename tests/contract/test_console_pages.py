"""What every page of the console has: its frame, its weight, and the calls that it shows."""

import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import httpx2
import pytest

from devstack.harness.stack import Stack
from tests.support.http.openapi import openapi_document
from tests.support.lists.subscribers import new_list
from tests.support.people.consoles import OwnerAtConsole, at_console, calls_of, heading, shown
from tests.support.security import world as worlds
from tests.support.security.console_calls import CONSOLE_CALLS
from tests.support.security.world import World, settled

ROOT = Path(__file__).parents[2]
MAX_PAGE_BYTES = 100_000
# Others are files, streams and what leads elsewhere.
PAGES = [
    operation
    for operation, call in CONSOLE_CALLS.items()
    if operation.startswith("GET") and call.own == 200 and "/assets/" not in operation
    if not operation.endswith("/events")
]


@pytest.fixture(scope="module")
def world(stack: Stack) -> Iterator[World]:
    made = worlds.build(stack)
    settled(stack)
    yield made
    made.client.close()


@pytest.fixture(scope="module")
def owner(stack: Stack, world: World) -> Iterator[OwnerAtConsole]:
    with at_console(stack, world.owner) as found:
        yield found


@pytest.fixture(scope="module", params=PAGES)
def text(request: pytest.FixtureRequest, owner: OwnerAtConsole, world: World) -> str:
    """Each page of the console, opened once for all that is true of each."""
    page: str = request.param
    return shown(CONSOLE_CALLS[page].send(owner.visitor.client, page, world.values))


@pytest.fixture(scope="module")
def weights(owner: OwnerAtConsole) -> Callable[[str], int]:
    """The bytes of a script or style, which is read once."""

    @cache
    def weight(url: str) -> int:
        asset = owner.visitor.client.get(url)
        assert asset.status_code == 200
        assert asset.headers["cache-control"] == "public, max-age=31536000, immutable"
        return len(asset.content)

    return weight


def test_a_page_says_what_it_is_and_loads_little(text: str, weights: Callable[[str], int]) -> None:
    assert heading(text)
    assert text.count("<main") == 1
    assert 'href="#main"' in text
    loaded = re.findall(r'(?:script src|link rel="stylesheet" href)="([^"]+)"', text)
    assert len(loaded) >= 2
    assert len(text.encode()) + sum(map(weights, loaded)) <= MAX_PAGE_BYTES


@pytest.fixture(scope="module")
def documented() -> set[tuple[str, re.Pattern[str]]]:
    return {
        (method.upper(), re.compile(re.sub(r"{\w+}", "[^/?]+", path) + r"(\?.*)?$"))
        for path, operations in openapi_document()["paths"].items()
        for method in operations
    }


def test_a_page_shows_calls_that_the_document_has(
    text: str, documented: set[tuple[str, re.Pattern[str]]]
) -> None:
    for call in calls_of(text):
        assert any(
            method == call.method and path.match(call.path) for method, path in documented
        ), call


def test_links_of_the_frame_lead_somewhere(owner: OwnerAtConsole) -> None:
    text = owner.see("/console")
    [navigation] = re.findall(r'<nav aria-label="Console">(.*?)</nav>', text, re.S)
    links = re.findall(r'href="([^"]+)"', navigation)
    assert len(links) >= 2
    for url in links:
        shown(owner.visitor.client.get(url))


def test_a_page_of_nothing_and_of_a_list_that_is_none_are_told_alike(owner: OwnerAtConsole) -> None:
    own = f"/console/lists/{new_list(owner.api)['id']}"
    paths = (
        *("/console/nowhere", "/console/lists/1", "/console/lists/never-was"),
        *(f"{own}/members/omar@example.com", f"{own}/members/1", f"{own}/segments/none"),
    )
    pages = {owner.see(path, 404) for path in paths}
    assert len(pages) == 1
    assert heading(pages.pop()) == "There is nothing here"


def test_an_asset_of_another_release_is_answered_by_ours_and_not_kept(
    stranger: httpx2.Client,
) -> None:
    reply = stranger.get("/console/assets/console.0123456789abcdef.css")
    assert reply.status_code == 200
    assert reply.headers["cache-control"] == "no-store"
    assert reply.headers["content-type"] == "text/css; charset=utf-8"
    assert stranger.get("/console/assets/other.0123456789abcdef.css").status_code == 404


def test_a_script_whose_session_has_ended_leads_the_whole_page_to_the_login(
    stack: Stack, stranger: httpx2.Client
) -> None:
    current = f"{stack.api_url}/console/lists?cursor=1-2"
    asked = {"HX-Request": "true", "HX-Current-URL": current}
    reply = stranger.get("/console/lists/7/members", headers=asked)
    assert reply.status_code == 200
    login = f"{stack.api_url}/login?next=%2Fconsole%2Flists%3Fcursor%3D1-2"
    assert reply.headers["hx-redirect"] == login
    asked["HX-Current-URL"] = "https://evil.example/"
    reply = stranger.get("/console/lists/7", headers=asked)
    assert reply.headers["hx-redirect"].endswith("/login?next=%2Fconsole%2Flists%2F7")


def test_a_notice_is_told_once(owner: OwnerAtConsole) -> None:
    reply = owner.send("/console/lists/new", title="Zürich & more", slug="a-notice-is-told")
    path = reply.headers["location"]
    assert "is created." in shown(owner.visitor.client.get(path))
    assert "is created." not in shown(owner.visitor.client.get(path))


def test_the_account_leads_to_the_console(owner: OwnerAtConsole, stack: Stack) -> None:
    assert f'href="{stack.api_url}/console"' in owner.visitor.get("/account").text
