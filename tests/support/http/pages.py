"""Checks that every page for readers must pass, and a helper that follows redirects."""

import html
import re
from collections.abc import Collection

import httpx2

# The Accept header that a browser sends with a form.
BROWSER_HEADERS = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


def read_heading(reply: httpx2.Response, status: int = 200) -> str:
    """Check the parts that every page for readers must contain, and return the page's heading."""
    assert reply.status_code == status, reply.text
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    require_headers(reply)
    assert reply.text.startswith("<!doctype html>")
    assert '<html lang="en">' in reply.text
    assert "<script" not in reply.text
    for landmark in ("main", "footer", "title"):
        assert reply.text.count(f"<{landmark}>") == 1
    # A page for readers names the service once, in the header or in the footer.
    service_name = r"<header><p>Pressroom</p></header>|<p><i>Pressroom</i></p>\n</footer>"
    assert len(re.findall(service_name, reply.text)) == 1
    [heading] = re.findall(r"<h1>(?:<bdi>)?(.*?)(?:</bdi>)?</h1>", reply.text)
    assert re.search(r"<title>(.*?)</title>", reply.text)[1].startswith(heading)  # type: ignore[index]
    return html.unescape(heading).replace("\N{NON-BREAKING HYPHEN}", "-")


def read_text(reply: httpx2.Response) -> str:
    """Return the HTML of a page without ``<wbr>`` tags, which allow line breaks in addresses."""
    return reply.text.replace("<wbr>", "")


def require_headers(reply: httpx2.Response, *, cookies: Collection[str] = ()) -> None:
    """Check the security headers of a page or of a redirect to a page."""
    policy = reply.headers["content-security-policy"]
    for rule in ("default-src 'none'", "form-action 'self'", "frame-ancestors 'none'"):
        assert rule in policy
    assert "base-uri 'none'" in policy
    assert "unsafe" not in policy
    assert reply.headers["cache-control"] == "no-store"
    assert reply.headers["referrer-policy"] == "no-referrer"
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert reply.headers["x-robots-tag"] == "noindex"
    assert set(reply.cookies) == set(cookies)
    assert "x-request-id" in reply.headers


def follow_redirect(client: httpx2.Client, reply: httpx2.Response) -> httpx2.Response:
    assert reply.next_request
    return client.send(reply.next_request)
