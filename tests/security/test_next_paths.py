"""Tests that a login redirects only to local paths, whatever the parameter `next` contains."""

import re
from urllib.parse import urlsplit

import httpx2

from api.auth.redirects import read_local_path
from devstack.harness.stack import Stack
from tests.support.people.visiting import Visitor, new_account, new_visitor

EVIL = "evil.example"
CONTROLS = [chr(code) for code in (*range(0x21), 0x7F, 0x85, 0xA0, 0xAD, 0x2028, 0x2029, 0xFEFF)]

HOSTILE_PATHS = [
    *("", " ", "account", "?next=/", "#", ".", "..", "./account", "../account", ":", "@evil"),
    *(f"{scheme}://{EVIL}/" for scheme in ("http", "https", "HTTPS", "ftp", "ws", "")),
    *(f"{scheme}:{EVIL}" for scheme in ("http", "https", "mailto", "file", "blob", "about")),
    *("javascript:alert(1)", "JaVaScRiPt:alert(1)", "data:text/html,x", "vbscript:x"),
    "java\tscript:x",
    *("https:/" + EVIL, "https:" + EVIL, "https:\\\\" + EVIL, "https:\\" + EVIL),
    *(
        slashes + EVIL
        for slashes in ("//", "///", "////", "\\\\", "\\/", "/\\", "/\\/", "//\\", "\\")
    ),
    *(f"{slashes}user:x@{EVIL}/" for slashes in ("//", "/\\", "\\/")),
    f"/\\{EVIL}",
    f"/a\\..\\..\\{EVIL}",
    f"//{EVIL}/%2e%2e",
    f"//{EVIL}:443/",
    "//[::1]/",
    "//2130706433/",
    f"/ /{EVIL}",
    f"/{EVIL}\u3002com",
    f"\uff0f\uff0f{EVIL}",
    f"/\uff0f{EVIL}",
    f"/\u2215{EVIL}",
    "/é",
    "/" + "a" * 8001,
    *(f"{control}//{EVIL}" for control in CONTROLS),
    *(f"/{control}/{EVIL}" for control in CONTROLS),
    *(f"/account{control}" for control in CONTROLS),
    *(f"{control}/account" for control in CONTROLS),
    *(f"java{control}script:alert(1)" for control in CONTROLS),
    "/account\r\nSet-Cookie: x=y",
    "/account\nLocation: https://evil.example",
]
LOCAL_PATHS = [
    "/",
    "/account",
    "/account?done=password",
    "/oauth/authorize?client_id=1&redirect_uri=https%3A%2F%2Fapp.example%2F&scope=credit.read",
    "/oauth/authorize?redirect_uri=https://app.example/back",
    "/a/../b",
    "/%2f%2fevil.example",
    "/%5cevil.example",
    "/a//b",
]


def test_redirect_after_login_accepts_only_local_paths() -> None:
    for path in (*HOSTILE_PATHS, None, 5, ["/account"]):
        assert read_local_path(path) is None, repr(path)
    assert [read_local_path(path) for path in LOCAL_PATHS] == LOCAL_PATHS


def test_login_redirects_only_to_our_own_host(stack: Stack) -> None:
    email = new_account(stack)
    with new_visitor(stack) as visitor:
        for path in [f"//{EVIL}", f"/\\{EVIL}", f"https://{EVIL}"]:
            require_own_host(stack, visitor.log_in(email, next=path).headers["location"])
            log_out(visitor)
        visitor.log_in(email)
        # The login page redirects people who are already logged in.
        for path in (f"//{EVIL}", f"/\\{EVIL}", "javascript:alert(1)", "\t//evil.example", "/é"):
            reply = visitor.get("/login", next=path)
            assert reply.status_code == 303
            assert reply.headers["location"] == f"{stack.api_url}/console"
        for path in LOCAL_PATHS[::4]:
            reply = visitor.get("/login", next=path)
            assert reply.headers["location"] == stack.api_url + path
            require_own_host(stack, str(reply.next_request.url) if reply.next_request else "")


def log_out(visitor: Visitor) -> None:
    visitor.client.post("/logout", data={"csrf_token": visitor.csrf_token()})


def require_own_host(stack: Stack, location: str) -> None:
    assert urlsplit(location)[:2] == urlsplit(stack.api_url)[:2]


def test_login_form_drops_or_escapes_hostile_redirect_path(stack: Stack) -> None:
    with new_visitor(stack) as visitor:
        assert 'name="next"' not in visitor.get("/login", next=f"//{EVIL}").text
        plain = visitor.get("/login", next="/account")
        escaped = visitor.get("/login", next='/account?"><script>alert(1)</script>')
        assert "alert(1)" in escaped.text
        # The page has only one script, which is for passkeys.
        for page in (plain, escaped):
            assert page.text.count("<script") == page.text.count("</script") == 1
        assert find_scripts(escaped) == find_scripts(plain)
        policies = [page.headers["content-security-policy"] for page in (plain, escaped)]
        assert policies[0] == policies[1]


def find_scripts(page: httpx2.Response) -> list[str]:
    return re.findall(r"<script.*?</script>", page.text, re.DOTALL)
