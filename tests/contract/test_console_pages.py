"""Tests that every console page has the common layout, a limited size and valid API calls."""

import gzip
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import httpx2
import pytest

from devstack.harness.stack import Owner, Stack
from tests.support.http.openapi import openapi_document
from tests.support.lists.subscribers import new_list
from tests.support.people.consoles import OwnerAtConsole, at_console, calls_of, heading, read_page
from tests.support.security import world as worlds
from tests.support.security.console_calls import CONSOLE_CALLS
from tests.support.security.world import World, await_jobs
from tests.support.stack.without_workers import DOCS_URL

ROOT = Path(__file__).parents[2]
# The maximum compressed size of a page together with its style sheets and scripts.
MAX_PAGE_BYTES = 40_000
# The console's GET routes that return a page, and no file, stream or redirect.
PAGES = [
    operation
    for operation, call in CONSOLE_CALLS.items()
    if operation.startswith("GET") and call.own == 200 and "/assets/" not in operation
    if not operation.endswith("/events")
]


@pytest.fixture(scope="module")
def sample_account(stack: Stack) -> Iterator[World]:
    """An owner who has one item of every kind that a console page can show."""
    account = worlds.build(stack)
    await_jobs(stack)
    yield account
    account.client.close()


@pytest.fixture(scope="module")
def sample_console(stack: Stack, sample_account: World) -> Iterator[OwnerAtConsole]:
    """The owner in the fixture `sample_account`, who is logged in to the console."""
    with at_console(stack, sample_account.owner) as owner:
        yield owner


@pytest.fixture(scope="module", params=PAGES)
def page_text(
    request: pytest.FixtureRequest, sample_console: OwnerAtConsole, sample_account: World
) -> str:
    """The text of a console page. Tests that use `page_text` run once per console page."""
    page: str = request.param
    return read_page(
        CONSOLE_CALLS[page].send(sample_console.visitor.client, page, sample_account.values)
    )


@pytest.fixture(scope="module")
def asset_bytes(sample_console: OwnerAtConsole) -> Callable[[str], int]:
    """A function that returns the compressed size of a script or style sheet in bytes."""

    @cache
    def measure_asset(url: str) -> int:
        asset = sample_console.visitor.client.get(url)
        assert asset.status_code == 200
        assert asset.headers["cache-control"] == "public, max-age=31536000, immutable"
        return len(gzip.compress(asset.content))

    return measure_asset


def test_every_console_page_has_a_heading_and_stays_below_its_size_limit(
    page_text: str, asset_bytes: Callable[[str], int]
) -> None:
    assert heading(page_text)
    assert page_text.count("<main") == 1
    assert 'href="#main"' in page_text
    asset_urls = re.findall(r'(?:script src|link rel="stylesheet" href)="([^"]+)"', page_text)
    assert len(asset_urls) >= 2
    page_bytes = len(gzip.compress(page_text.encode()))
    assert page_bytes + sum(map(asset_bytes, asset_urls)) <= MAX_PAGE_BYTES


@pytest.fixture(scope="module")
def documented_calls() -> set[tuple[str, re.Pattern[str]]]:
    """The method and path pattern of every operation in the OpenAPI document."""
    return {
        (method.upper(), re.compile(re.sub(r"{\w+}", "[^/?]+", path) + r"(\?.*)?$"))
        for path, operations in openapi_document()["paths"].items()
        for method in operations
    }


def test_every_api_call_shown_in_the_console_is_documented(
    page_text: str, documented_calls: set[tuple[str, re.Pattern[str]]]
) -> None:
    for call in calls_of(page_text):
        assert any(
            method == call.method and path.match(call.path) for method, path in documented_calls
        ), call


def read_menu(text: str, label: str = "Console") -> str:
    """Return the HTML of one of a page's menus."""
    [menu] = re.findall(rf'<nav [^>]*aria-label="{label}">(.*?)</nav>', text, re.S)
    return str(menu)


def read_entries(menu: str) -> list[tuple[str, bool]]:
    """Return the label of each entry of a menu, and whether the entry is the current one."""
    entries = re.findall(r"<li><a ([^>]*)>(?:<svg.*?</svg>)?(.*?)</a></li>", menu, re.S)
    return [
        (re.sub(r"<[^>]+>", "", label), "aria-current" in attributes)
        for attributes, label in entries
    ]


def test_menu_shows_the_pages_of_the_current_list_only_on_pages_of_a_list(
    sample_console: OwnerAtConsole,
) -> None:
    list_id = new_list(sample_console.api, title="Tea & Co")["id"]
    list_pages = ["Growth", "Engagement", "Members", "Segments", "Mailings", "Send"]
    list_pages += ["Sign-up", "Settings"]
    library = ["Images", "Composer"]
    account = ["Credits", "Developers", "Account"]
    for path, current in (
        ("", "Growth"),
        ("/engagement", "Engagement"),
        ("/members/new", "Members"),
        ("/bulk-actions", "Members"),
        ("/tags", "Members"),
        ("/export", "Members"),
        ("/segments/new", "Segments"),
        ("/public", "Sign-up"),
        ("/archive", "Settings"),
    ):
        menu = read_menu(sample_console.see(f"/console/lists/{list_id}{path}"))
        assert "<bdi>Tea &amp; Co</bdi>" in menu
        entries = read_entries(menu)
        labels = ["Overview", "Find", *list_pages, *library, *account]
        assert entries == [(label, label == current) for label in labels]
    for path, current in (
        ("/console", "Overview"),
        ("/console/lists/new", "Lists"),
        ("/console/fields", "Lists"),
        ("/console/imports/new", "Lists"),
        ("/console/developers/keys/new", "Developers"),
        ("/account/password", "Account"),
    ):
        entries = read_entries(read_menu(sample_console.see(path)))
        labels = ["Overview", "Find", "Lists", *library, *account]
        assert entries == [(label, label == current) for label in labels]


def test_each_page_of_an_area_links_to_the_others_and_each_detail_page_one_level_back(
    sample_console: OwnerAtConsole,
) -> None:
    list_path = f"/console/lists/{new_list(sample_console.api)['id']}"
    views = ["Members", "Tags", "Fields", "Bulk actions", "Export"]
    for path, current in (
        ("members", "Members"),
        ("tags", "Tags"),
        ("bulk-actions", "Bulk actions"),
        ("export", "Export"),
    ):
        text = sample_console.see(f"{list_path}/{path}")
        assert read_entries(read_menu(text, "Members")) == [
            (view, view == current) for view in views
        ]
    text = sample_console.see("/console/fields")
    assert [label for label, _ in read_entries(read_menu(text, "Lists"))] == [
        *("All lists", "Fields", "Imports", "Exports")
    ]
    text = sample_console.see(f"{list_path}/members/new")
    assert 'aria-label="Members"' not in text
    assert f'{list_path}/members"><bdi>Members</bdi></a></p>' in text


def test_style_sheet_of_the_console_has_at_most_30_kb(sample_console: OwnerAtConsole) -> None:
    [url] = re.findall(r'link rel="stylesheet" href="([^"]+)"', sample_console.see("/console"))
    style = sample_console.visitor.client.get(url).text
    assert len(style.encode()) <= 30_000
    assert max(map(len, style.splitlines())) <= 120


def test_console_navigation_links_lead_to_existing_pages(sample_console: OwnerAtConsole) -> None:
    text = sample_console.see("/console")
    links = re.findall(r'href="([^"]+)"', read_menu(text))
    assert len(links) >= 2
    for url in links:
        read_page(sample_console.visitor.client.get(url))


def test_console_links_to_the_documentation_only_if_its_url_is_set(
    sample_console: OwnerAtConsole, stack_without_workers: Stack, owner_without_workers: Owner
) -> None:
    assert "Documentation</a>" not in sample_console.see("/console")
    with at_console(stack_without_workers, owner_without_workers) as owner:
        assert f'<a href="{DOCS_URL}">Documentation</a>' in owner.see("/console")


def test_console_shows_the_same_404_page_for_every_unknown_page_or_item(
    sample_console: OwnerAtConsole,
) -> None:
    own_list_path = f"/console/lists/{new_list(sample_console.api)['id']}"
    paths = (
        "/console/nowhere",
        "/console/lists/1",
        "/console/lists/never-was",
        f"{own_list_path}/members/omar@example.com",
        f"{own_list_path}/members/1",
        f"{own_list_path}/segments/none",
    )
    pages = {sample_console.see(path, 404) for path in paths}
    assert len(pages) == 1
    assert heading(pages.pop()) == "Page not found"


def test_console_asset_of_another_release_returns_the_current_file_uncached(
    stranger: httpx2.Client,
) -> None:
    reply = stranger.get("/console/assets/console.0123456789abcdef.css")
    assert reply.status_code == 200
    assert reply.headers["cache-control"] == "no-store"
    assert reply.headers["content-type"] == "text/css; charset=utf-8"
    assert stranger.get("/console/assets/other.0123456789abcdef.css").status_code == 404


@pytest.mark.parametrize(
    ("accepted", "encoding"),
    [("gzip, deflate, br", "gzip"), ("br,GZIP", "gzip"), ("gzip;q=0", None), ("identity", None)],
)
def test_console_asset_is_compressed_for_clients_that_accept_gzip(
    stranger: httpx2.Client, accepted: str, encoding: str | None
) -> None:
    path = "/console/assets/console.0123456789abcdef.css"
    whole = stranger.get(path, headers={"Accept-Encoding": "identity"})
    reply = stranger.get(path, headers={"Accept-Encoding": accepted})
    assert reply.headers.get("content-encoding") == encoding
    assert reply.headers["vary"] == "Accept-Encoding"
    assert reply.text == whole.text
    if encoding:
        assert int(reply.headers["content-length"]) < len(whole.content) / 3


def test_console_script_request_without_session_redirects_to_the_login(
    stack: Stack, stranger: httpx2.Client
) -> None:
    current_url = f"{stack.api_url}/console/lists?cursor=1-2"
    headers = {"HX-Request": "true", "HX-Current-URL": current_url}
    reply = stranger.get("/console/lists/7/members", headers=headers)
    assert reply.status_code == 200
    login_url = f"{stack.api_url}/login?next=%2Fconsole%2Flists%3Fcursor%3D1-2"
    assert reply.headers["hx-redirect"] == login_url
    headers["HX-Current-URL"] = "https://evil.example/"
    reply = stranger.get("/console/lists/7", headers=headers)
    assert reply.headers["hx-redirect"].endswith("/login?next=%2Fconsole%2Flists%2F7")


def test_console_notice_is_shown_only_once(sample_console: OwnerAtConsole) -> None:
    reply = sample_console.send(
        "/console/lists/new", title="Zürich & more", slug="a-notice-is-told"
    )
    path = reply.headers["location"]
    assert "was created." in read_page(sample_console.visitor.client.get(path))
    assert "was created." not in read_page(sample_console.visitor.client.get(path))


def test_account_page_links_to_the_console(sample_console: OwnerAtConsole, stack: Stack) -> None:
    assert f'href="{stack.api_url}/console"' in sample_console.visitor.get("/account").text
