"""The headers that scripts of other origins can read: all that the API answers with."""

import re
import secrets
from pathlib import Path

import httpx

from api.middleware.cors import EXPOSED_HEADERS
from tests.contract.replies import data, send

# Those that browsers let scripts read always, and those that are for browsers and proxies alone.
_SAFELISTED = {"cache-control", "content-length", "content-type", "last-modified"}
_FOR_BROWSERS = {
    "access-control-allow-origin",
    "access-control-expose-headers",
    "allow",
    "connection",
    "content-security-policy",
    "date",
    "referrer-policy",
    "server",
    "transfer-encoding",
    "vary",
    "x-content-type-options",
}


def exposed_by(reply: httpx.Response) -> set[str]:
    return set(reply.headers["access-control-expose-headers"].split(", "))


def test_scripts_may_read_every_header_that_an_answer_has(
    client: httpx.Client, stranger: httpx.Client
) -> None:
    client.headers["Origin"] = stranger.headers["Origin"] = "https://writer.example"
    data(client.post("/apikeys", json={"name": "another"}))
    key = secrets.token_hex(16)
    made = send(client, key=key)
    media = f"/media/{data(made)['filename']}"
    whole = client.get(media)
    replies = [
        made,
        send(client, key=key),
        send(client, prefer="respond-async"),
        whole,
        client.get(media, headers={"Range": "bytes=0-9"}),
        client.get(media, headers={"Range": "bytes=9999999-"}),
        client.get(media, headers={"If-None-Match": whole.headers["etag"]}),
        client.post("/composer/metadata", json={"title": "Birds", "content": "Some words."}),
        client.get("/auxilia/credits/prices", headers={"Prefer": "handling=strict"}),
        client.get("/apikeys", params={"limit": 1}),
        client.post("/users/me"),
        client.get("/jobs/1"),
        stranger.get("/users/me"),
        stranger.post("/subscriptions/1", json={"email": "reader@example.com"}),
    ]
    seen: set[str] = set()
    for reply in replies:
        exposed = {each.lower() for each in exposed_by(reply)}
        assert set(reply.headers) <= exposed | _SAFELISTED | _FOR_BROWSERS
        seen |= set(reply.headers) & exposed
    # Each is there for an answer that has it. Here nothing is refused for a time, or limited, and
    # no operation is deprecated; test_versions has one that is.
    elsewhere = {"retry-after", "ratelimit", "ratelimit-policy", "deprecation", "sunset"}
    assert seen == {each.lower() for each in EXPOSED_HEADERS} - elsewhere


def test_page_about_the_api_lists_what_scripts_may_read() -> None:
    page = (Path(__file__).parents[2] / "docs" / "api.md").read_text()
    [section] = re.findall(r"^## Browsers\n(.*?)^## ", page, re.DOTALL | re.MULTILINE)
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    assert sorted(re.findall(r"`([^`]+)`", " ".join(rows))) == sorted(EXPOSED_HEADERS)
