"""Tests of the start page, the well-known paths and the contract versions."""

import re
from datetime import datetime, timedelta

import httpx2
import pytest

from api.middleware.versions import VERSIONS
from core import clock
from devstack.harness.stack import Stack
from tests.support.http.replies import data, problem
from tests.support.stack.given_settings import settings
from tests.support.stack.without_workers import CONTACTS, POLICY

BROWSER_ACCEPT = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


@pytest.mark.parametrize("accept", ["*/*", "application/json", ""])
def test_root_url_returns_name_and_version_and_links_to_programs(
    stack: Stack, stranger: httpx2.Client, accept: str
) -> None:
    reply = stranger.get("/", headers={"Accept": accept})
    record = data(reply)
    assert record["name"] == "Pressroom"
    assert record["contract"] == record["contracts"][0] == VERSIONS[0]
    assert record["version"]
    for link in record["links"].values():
        assert link.startswith(f"{stack.api_url}/")
        assert stranger.get(link).status_code in {200, 303}, link
    assert reply.headers["vary"] == "Accept, Origin"


def test_root_url_shows_browsers_a_page_with_links(stack: Stack, stranger: httpx2.Client) -> None:
    reply = stranger.get("/", headers={"Accept": BROWSER_ACCEPT})
    assert reply.status_code == 200
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    assert reply.text.index(f"{stack.api_url}/console") < reply.text.index("/docs")
    for path in ("/console", "/docs", "/openapi.json", "/account", "/register", "/preferences/ask"):
        assert f'href="{stack.api_url}{path}"' in reply.text
    assert "<script" not in reply.text


def test_common_aliases_redirect_to_docs_and_health_check(stranger: httpx2.Client) -> None:
    for path, target in (("/redoc", "/docs"), ("/health", "/healthz")):
        reply = stranger.get(path)
        assert (reply.status_code, reply.headers["location"]) == (307, target)
    page = stranger.get("/docs")
    assert page.status_code == 200
    urls = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    # The page loads its files only from /docs, and links to the console and the start page.
    assert {url for url in urls if not url.startswith("/docs/")} == {"data:,", "console", "./"}


def test_api_docs_name_their_language(stranger: httpx2.Client) -> None:
    page = stranger.get("/docs").text
    assert '<html lang="en">' in page


SECURITY_TXT_PATH = "/.well-known/security.txt"


def test_security_txt_names_contacts_and_an_expiry_within_a_year(
    stack_without_workers: Stack,
) -> None:
    reply = httpx2.get(stack_without_workers.api_url + SECURITY_TXT_PATH)
    assert reply.status_code == 200
    assert reply.headers["content-type"] == "text/plain; charset=utf-8"
    fields = [line.split(": ", 1) for line in reply.text.splitlines()]
    (expires,) = [value for name, value in fields if name == "Expires"]
    assert fields == [
        *(["Contact", each] for each in CONTACTS),
        ["Expires", expires],
        ["Preferred-Languages", "en"],
        ["Canonical", stack_without_workers.api_url + SECURITY_TXT_PATH],
        ["Policy", POLICY],
    ]
    time_to_expiry = datetime.fromisoformat(expires) - clock.now()
    # RFC 9116, section 2.5.5, recommends an expiry of less than a year.
    assert timedelta(days=170) < time_to_expiry < timedelta(days=365)


def test_security_txt_is_missing_without_a_configured_contact(stranger: httpx2.Client) -> None:
    problem(stranger.get(SECURITY_TXT_PATH), 404, "route.not_found")


@pytest.mark.parametrize(
    "contact", ["security@news.example", "http://news.example", "mailto:a b", "tel:1\nContact: x"]
)
def test_security_contact_must_be_a_mailto_or_https_or_tel_uri(contact: str) -> None:
    with pytest.raises(ValueError, match="mailto:, https:// or tel:"):
        settings(security_contacts=contact)


def test_well_known_change_password_url_redirects_to_the_password_page(
    stack: Stack, stranger: httpx2.Client
) -> None:
    reply = stranger.get("/.well-known/change-password")
    assert (reply.status_code, reply.headers["location"]) == (
        303,
        f"{stack.api_url}/account/password",
    )
    # Clients request this path to find out whether a host returns status 200 for every path.
    nonexistent_name = "resource-that-should-not-exist-whose-status-code-should-not-be-200"
    assert stranger.get(f"/.well-known/{nonexistent_name}").status_code == 404


VERSION_HEADER = "Pressroom-Version"


def test_every_api_response_names_the_oldest_contract_version_by_default(
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
        # A client that requests no contract version may have been written for the oldest contract
        # version.
        assert reply.headers.get_list(VERSION_HEADER) == [VERSIONS[-1]], reply.request.url


def test_html_pages_have_no_contract_version(stranger: httpx2.Client) -> None:
    for headers in ({}, {VERSION_HEADER: "1999-01-01"}):
        reply = stranger.get("/login", headers=headers)
        assert reply.status_code == 200
        assert VERSION_HEADER not in reply.headers


@pytest.mark.parametrize("version", VERSIONS)
def test_request_can_choose_a_contract_version(client: httpx2.Client, version: str) -> None:
    reply = client.get("/users/me", headers={VERSION_HEADER: version})
    data(reply)
    assert reply.headers[VERSION_HEADER] == version


def test_unknown_contract_version_is_rejected_and_the_known_ones_are_named(
    client: httpx2.Client,
) -> None:
    for unknown_version in [
        "1999-01-01",
        "2999-01-01",
        "latest",
        "",
        f"{VERSIONS[0]}, {VERSIONS[0]}",
        "é",
    ]:
        headers = httpx2.Headers({VERSION_HEADER: unknown_version}, encoding="utf-8")
        error = problem(client.post("/lists", json={}, headers=headers), 400, "version.unknown")
        for version in VERSIONS:
            assert version in error["message"]
    two_headers = [(VERSION_HEADER, VERSIONS[0]), (VERSION_HEADER, "1999-01-01")]
    problem(client.get("/users/me", headers=two_headers), 400, "version.unknown")
