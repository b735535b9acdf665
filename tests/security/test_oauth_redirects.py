"""Tests that OAuth never redirects to a URI that only looks like a registered URI."""

import pytest

from core.errors import DomainError
from devstack.harness.stack import Stack
from services.oauth import clients
from tests.support.people.oauth import LOOPBACK, REDIRECT, Person, Program, fields_of, is_error

HOSTS = [
    *("evil.example", "client.example.evil.example", "client.example@evil.example"),
    *("evil.example#client.example", "evil.example\\@client.example", "client.example:444"),
    *("client.example:80", "client.example.", "CLIENT.example", "client%2eexample"),
    *("user@client.example", "client.example%00.evil.example", "client.example\\.evil.example"),
    *("cl\u0456ent.example", "xn--clent-uxa.example", "[::1]", "127.0.0.1", "0x7f.1", "2130706433"),
    *("localhost", "client.example%0d%0aLocation:evil", "evil.example/client.example"),
    *("client.example;evil.example", "client.example,evil.example", "client.example evil.example"),
]
SCHEMES = [
    *("http", "HTTPS", "javascript", "data", "file", "ftp", "ws", "blob", "about", "vbscript"),
    *("intent", "view-source", "gopher", "jar:https", "https https", " https", "\thttps", ""),
]
PATHS = [
    *("", "/", "/callback/", "/callback/x", "/callback/..", "/callback/../callback", "/Callback"),
    *("/callback%2f", "/%63allback", "//callback", "/./callback", "/callback;x", "/callback."),
    *("/callback?", "/callback?x=1", "/callback?redirect=https://evil.example", "/callback#"),
    *("/callback#x", "/callback%00", "/callback\x00", "/callback\n", "/callback\r\nX: y"),
    *("/callback ", "/callback%20", "/callback\\", "/\\evil.example", "/callback&x", "/call"),
    *("/callback%0d%0aSet-Cookie:a=b", "/callbackevil", "/callback/../../evil", "/callback\u202e"),
    *("/callback?%23", "/..;/callback", "/callback/%2e%2e/evil", "/callback\t", "/callback\x7f"),
]
COMPLETE_URIS = [
    *("//client.example/callback", "///client.example/callback", "/callback", "callback", "."),
    *("https:client.example/callback", "https:/client.example/callback", "\\\\evil.example"),
    *("https:///client.example/callback", "https:\\\\client.example\\callback", "*", "null"),
    *("javascript:alert(1)//https://client.example/callback", "undefined", "https://*/callback"),
    *("data:text/html,https://client.example/callback", "https://client.example/*", "about:blank"),
    *("urn:ietf:wg:oauth:2.0:oob", "com.evil.app:/callback", "client.example/callback", "%"),
    *("https://client.example/callback https://evil.example", "https://client.example/callback,"),
    *("https://evil.example/?https://client.example/callback", "https://%63lient.example/callback"),
    *("https://[::1", "https://client.example:99999999/callback", "https://client.example:x/c"),
]
NEAR_LOOPBACK = [
    *("http://127.0.0.1:5000/other", "https://127.0.0.1:5000/callback", "http://127.0.0.1/other"),
    *("http://127.0.0.2:5000/callback", "http://localhost:5000/callback", "http://127.1:5000/c"),
    *("http://127.0.0.1:5000@evil.example/callback", "http://evil.example:5000/callback"),
    *("http://127.0.0.1.evil.example:5000/callback", "http://127.0.0.1:99999/callback"),
    *("http://127.0.0.1:5000/callback?x", "http://127.0.0.1:5000/callback#x", "http://[::1]:1/c"),
    *("http://127.0.0.1:-1/callback", "http://127.0.0.1:5000x/callback", "http://127.0.0.1:/x"),
    *("http://user@127.0.0.1:5000/callback", "http://127.0.0.1:05000/callback"),
    *("HTTP://127.0.0.1:5000/callback", "http://127.0.0.1:\uff15000/callback"),
    *("http://127.0.0.1:5000//callback", "http://2130706433:5000/callback"),
    *("http://0/callback", "http://0.0.0.0:1/c", "http://[::1]/callback"),
]

# URIs that are similar to a registered redirect URI, but to which the server must not redirect.
HOSTILE_URIS = [
    *(f"https://{host}/callback" for host in HOSTS),
    *(f"{scheme}://client.example/callback" for scheme in SCHEMES),
    *(f"https://client.example{path}" for path in PATHS),
    *COMPLETE_URIS,
    *NEAR_LOOPBACK,
]

# Redirect URIs that an OAuth client must not register.
UNREGISTRABLE = [
    *("", " ", "x", "/callback", "//client.example/callback", "http://client.example/callback"),
    *("https://", "https:///x", "https://client.example/x#y", "https://client.example/#"),
    *("https://user@client.example/x", "https://u:p@client.example/x", "ftp://client.example/x"),
    *("javascript:alert(1)", "data:text/html,x", "file:///etc/passwd", "https://client.example\\x"),
    *("myapp:/callback", "myapp://callback", "com.example.app://host/x", "com.example.app:x"),
    *("https://client.example/ü", "https://client.example/a b", "https://client.example/\n"),
    *("http://127.0.0.2/x", "http://localhost.evil.example/x", "http://0.0.0.0/x", "about:blank"),
    *("https://client.example:x/", "https://[::1/", "https://client.example/" + "x" * 2000),
    *("https://client.example/x?", "HTTPS://client.example/x", "https://client.example/\x00"),
]


def test_authorization_never_redirects_to_unregistered_uri(
    stack: Stack, public_program: Program, logged_in_owner: Person
) -> None:
    assert len(set(HOSTILE_URIS)) >= 100
    # Pressroom must reject the redirect URI whether or not the person is logged in, and even if the
    # request contains another mistake.
    mistakes: list[dict[str, str | None]] = [
        {},
        {"scope": "nonsense"},
        {"response_type": "token"},
        {"response_type": None},
        {"code_challenge": None},
    ]
    with stack.client() as nobody:
        for number, uri in enumerate(HOSTILE_URIS):
            wrong_request = {**mistakes[number % len(mistakes)], "redirect_uri": uri}
            path = public_program.request(**wrong_request)
            for browser in (nobody, logged_in_owner.browser):
                reply = browser.get(path)
                assert reply.status_code == 400, uri
                assert "location" not in reply.headers
                assert reply.headers["content-type"].startswith("text/html")
                assert "evil" not in reply.text
    for changes in ({"redirect_uri": None}, {"client_id": None}, {"client_id": "nobody"}):
        for mistake in mistakes:
            reply = logged_in_owner.browser.get(public_program.request(**{**mistake, **changes}))
            assert reply.status_code == 400
            assert "location" not in reply.headers
    repeated_parameter = public_program.request() + "&redirect_uri=https://evil.example/"
    assert logged_in_owner.browser.get(repeated_parameter).status_code == 400
    assert logged_in_owner.browser.get(public_program.request() + "&client_id=x").status_code == 400
    assert (
        stack.query("SELECT 1 FROM oauth_grants WHERE user_id = %s", logged_in_owner.owner.user_id)
        == []
    )


def test_tampered_consent_form_never_redirects_to_unregistered_uri(
    public_program: Program, logged_in_owner: Person
) -> None:
    token = logged_in_owner.csrf_token(public_program.request())
    form = {"csrf_token": token, "decision": "allow", "scope.credit.read": "on"}
    for uri in HOSTILE_URIS:
        for decision in ("allow", "deny"):
            path = public_program.request(redirect_uri=uri)
            reply = logged_in_owner.browser.post(path, data={**form, "decision": decision})
            assert reply.status_code == 400, uri
            assert "location" not in reply.headers
    # Pressroom reads `redirect_uri` and `client_id` only from the URL, and not from the form.
    tampered_form = {**form, "redirect_uri": "https://evil.example/", "client_id": "x"}
    reply = logged_in_owner.browser.post(public_program.request(), data=tampered_form)
    assert reply.headers["location"].startswith(REDIRECT + "?")


def test_loopback_redirect_uri_may_vary_only_in_its_port(
    public_program: Program, logged_in_owner: Person
) -> None:
    for port in (1, 80, 5000, 49152, 65535):
        uri = f"http://127.0.0.1:{port}/callback"
        public_program.redirect_uri = uri
        try:
            location = logged_in_owner.answer(public_program.request(), "credit.read").headers[
                "location"
            ]
            assert location.startswith(uri + "?")
            code = fields_of(location)["code"]
            assert is_error(
                public_program.exchange(code, redirect_uri=LOOPBACK + "x"), 400, "invalid_grant"
            )
            reply = public_program.exchange(public_program.code(logged_in_owner))
            assert reply.status_code == 200
        finally:
            public_program.redirect_uri = REDIRECT
    assert clients.is_registered_uri("http://[::1]:7/cb", ["http://[::1]/cb"])
    assert not clients.is_registered_uri("http://localhost:7/cb", ["http://localhost:8/cb"])


def test_client_registration_rejects_unsafe_redirect_uris() -> None:
    for uri in UNREGISTRABLE:
        with pytest.raises(DomainError) as caught:
            clients.require_registrable_uri(uri)
        assert caught.value.code == "oauth_client.redirect_uri", uri
    for uri in (
        REDIRECT,
        LOOPBACK,
        "http://[::1]/x",
        "http://localhost:3000/x",
        "com.example.app:/callback",
        "https://client.example/cb?tenant=1",
    ):
        clients.require_registrable_uri(uri)
