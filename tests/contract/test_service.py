"""The address alone says what this is."""

import re

import httpx
import pytest

from api.middleware.versions import VERSIONS
from tests.contract.replies import data
from tests.stack import Stack

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


@pytest.mark.parametrize("accept", ["*/*", "application/json", ""])
def test_a_program_learns_what_this_is_and_where_to_go(
    stack: Stack, stranger: httpx.Client, accept: str
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


def test_a_person_sees_a_page_with_links(stack: Stack, stranger: httpx.Client) -> None:
    reply = stranger.get("/", headers={"Accept": BROWSER})
    assert reply.status_code == 200
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    for path in ("/docs", "/openapi.json", "/account"):
        assert f'href="{stack.api_url}{path}"' in reply.text
    assert "script" not in reply.text


def test_the_other_usual_address_leads_to_the_documentation(stranger: httpx.Client) -> None:
    reply = stranger.get("/redoc")
    assert (reply.status_code, reply.headers["location"]) == (307, "/docs")
    shown = stranger.get("/docs")
    assert shown.status_code == 200
    loaded = re.findall(r'(?:src|href)="([^"]+)"', shown.text)
    assert {each for each in loaded if not each.startswith("/docs/")} == {"data:,"}
