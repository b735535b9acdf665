"""Tests the response headers for browsers and caches."""

import asyncio
import base64
import hashlib
import re
from collections.abc import Iterator

import httpx2
import pytest
from pydantic import AnyUrl
from starlette.responses import PlainTextResponse

from api.drain import Drain
from api.middleware.response_headers import HeadersMiddleware
from devstack.harness.stack import Stack
from tests.support.http.replies import data, send

COMMON_HEADERS = {"x-content-type-options": "nosniff", "referrer-policy": "no-referrer"}
API_POLICY = "default-src 'none'; frame-ancestors 'none'"


@pytest.fixture(scope="module")
def client_over_tls(stack: Stack) -> Iterator[httpx2.Client]:
    """An HTTP client of an API whose public URL starts with https."""
    with (
        stack.run_second_api(
            PRESSROOM_PUBLIC_URL="https://api.example.com",
            PRESSROOM_TRUSTED_PROXIES="none",
            PRESSROOM_HSTS_SUBDOMAINS="true",
            PRESSROOM_API_DOCS="false",
        ) as api,
        api.client() as client,
    ):
        yield client


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/users/me", 200),
        ("HEAD", "/users/me", 200),
        ("GET", "/nowhere", 404),
        ("PUT", "/users/me", 405),
        ("GET", "/lists?limit=x", 400),
        ("POST", "/lists", 422),
        ("OPTIONS", "/lists", 405),
        ("GET", "/healthz", 200),
    ],
)
def test_api_responses_load_nothing_and_are_not_cached(
    client: httpx2.Client, method: str, path: str, status: int
) -> None:
    reply = client.request(method, path)
    assert reply.status_code == status
    assert reply.headers.items() >= COMMON_HEADERS.items()
    assert reply.headers["content-security-policy"] == API_POLICY
    assert reply.headers["cache-control"] == "no-store"
    for name in (*COMMON_HEADERS, "content-security-policy", "cache-control"):
        assert len(reply.headers.get_list(name)) == 1


def test_preflight_and_too_large_responses_have_security_headers(stranger: httpx2.Client) -> None:
    preflight = stranger.options(
        "/lists", headers={"Origin": "https://a.example", "Access-Control-Request-Method": "GET"}
    )
    too_large = stranger.post("/lists", content=b" " * (2 * 1024 * 1024 + 1))
    assert too_large.status_code == 413
    for reply in (preflight, too_large):
        assert reply.headers.items() >= COMMON_HEADERS.items()


def test_pages_and_media_have_their_own_security_policies(
    client: httpx2.Client, stranger: httpx2.Client
) -> None:
    page = stranger.get("/unsubscribe")
    assert page.headers["content-type"].startswith("text/html")
    [policy] = page.headers.get_list("content-security-policy")
    assert "style-src" in policy
    media = stranger.get(f"/media/{data(send(client))['filename']}")
    assert media.headers["content-security-policy"] == "sandbox"
    assert "immutable" in media.headers["cache-control"]
    assert media.headers.get_list("x-content-type-options") == ["nosniff"]


@pytest.mark.parametrize("path", ["/unsubscribe", "/login", "/docs"])
def test_pages_forbid_device_access_and_are_isolated_from_their_opener(
    stranger: httpx2.Client, path: str
) -> None:
    headers = stranger.get(path).headers
    assert headers["cross-origin-opener-policy"] == "same-origin"
    assert "camera=()" in headers["permissions-policy"]


def test_documentation_page_runs_only_its_own_scripts(stranger: httpx2.Client) -> None:
    page = stranger.get("/docs")
    rules = dict(
        rule.strip().split(" ", 1) for rule in page.headers["content-security-policy"].split(";")
    )
    [script] = re.findall("<script>(.*?)</script>", page.text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert rules["script-src"] == f"'self' 'sha256-{digest}'"
    [style] = re.findall("<style>(.*?)</style>", page.text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert rules["style-src"] == f"'self' 'sha256-{digest}'"
    assert (rules["default-src"], rules["frame-ancestors"]) == ("'none'", "'none'")
    assert page.headers["cache-control"] == "no-cache"
    for path in ("/docs/swagger-ui-bundle.js", "/docs/swagger-ui.css"):
        assert stranger.get(path).headers["content-security-policy"] == API_POLICY
    assert stranger.get("/openapi.json").headers["cache-control"] == "no-store"


@pytest.mark.parametrize("path", ["/healthz", "/nowhere", "/unsubscribe"])
def test_hsts_header_is_sent_only_over_https(
    stranger: httpx2.Client, client_over_tls: httpx2.Client, path: str
) -> None:
    hsts = client_over_tls.get(path).headers["strict-transport-security"]
    assert hsts == "max-age=31536000; includeSubDomains"
    assert "strict-transport-security" not in stranger.get(path).headers


def test_hsts_header_excludes_subdomains_by_default(stack: Stack) -> None:
    public = stack.settings().model_copy(update={"public_url": AnyUrl("https://api.example.com")})

    async def get() -> httpx2.Response:
        app = HeadersMiddleware(PlainTextResponse("x"), settings=public, drain=Drain(0))
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app)) as client:
            return await client.get("https://api.example.com/")

    assert asyncio.run(get()).headers["strict-transport-security"] == "max-age=31536000"
