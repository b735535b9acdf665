"""What outlasts a session needs a recent login; keys and tokens are not asked for one."""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi.dependencies.models import Dependant

from api.app import create_app
from api.auth.member_reads import MAX_MEMBERS_PER_SESSION_PAGE, MAX_PAGES_PER_HOUR
from api.auth.page_sessions import depend_on_recent
from api.openapi import list_api_routes
from core.settings import Settings
from devstack.harness.stack import Owner, Stack
from tests.support.http.replies import data, problem, send
from tests.support.images.pictures import photo
from tests.support.imports.bulk import imported, of_addresses
from tests.support.lists.subscribers import fill, new_list
from tests.support.lists.subscribers import new_address as new_reader
from tests.support.people.consoles import (
    OwnerAtConsole,
    at_console,
    at_operators_console,
    forms_of,
    heading,
    shown,
)
from tests.support.people.oauth import Person, fields_of, register
from tests.support.people.visiting import (
    PASSWORD,
    Visitor,
    a_visitor,
    age_logins,
    new_account,
    user_id_of,
)

REPOSITORY = Path(__file__).parents[2]
EVERYBODY = {"field": "email", "exists": True}


@dataclass(frozen=True)
class RecentAct:
    """An act that needs a recent login, and all routes by which a session can do it.

    Attributes:
        documented: the act in docs/accounts.md.
        promised: the act in SECURITY.md, where that page names it.
        api: JSON bodies of operations, and ``pages``: forms of pages, both by their route.
    """

    documented: str
    promised: str = ""
    api: dict[str, Any] = field(default_factory=dict)
    pages: dict[str, dict[str, str]] = field(default_factory=dict)


SENDER = {"name": "Ours", "provider": "generic"}
MAILGUN = {"name": "Theirs", "provider": "mailgun", "signing_key": "k"}
_SENDERS = "/console/developers/senders"
HOOK = {"url": "http://127.0.0.1:9/hook", "types": ["subscription.created"]}
REMOVAL = {"filter": EVERYBODY, "action": "remove"}
_LIST = "/console/lists/{list_id}"
_IMAGE = "/console/images/{hash_id}"
_HOOK = "/console/developers/webhooks"
_OPERATORS = "/console/operators"
BULK_FORM = f"POST {_LIST}/bulk-actions/new"
# The order matters, because the test makes one owner perform all of these actions in turn.
RECENT_ACTS = (
    RecentAct(
        "making API keys",
        api={"POST /apikeys": {"name": "k"}},
        pages={
            "GET /console/developers/keys/new": {},
            "POST /console/developers/keys/new": {"name": "k", "reach": "all", "lifetime": "90"},
        },
    ),
    RecentAct(
        "making or changing webhook endpoints",
        api={
            "POST /webhook-endpoints": HOOK,
            "PATCH /webhook-endpoints/{endpoint_id}": {"url": f"{HOOK['url']}/2"},
            "POST /webhook-endpoints/{endpoint_id}/rotate": None,
        },
        pages={
            f"GET {_HOOK}/new": {},
            f"POST {_HOOK}/new": {"url": "http://127.0.0.1:9/hook"},
            f"GET {_HOOK}/{{endpoint_id}}/change": {},
            f"POST {_HOOK}/{{endpoint_id}}/change": {"url": "http://127.0.0.1:9/3"},
            f"POST {_HOOK}/{{endpoint_id}}/state": {"state": "active"},
            f"GET {_HOOK}/{{endpoint_id}}/rotate": {},
            f"POST {_HOOK}/{{endpoint_id}}/rotate": {},
        },
    ),
    RecentAct(
        "making senders or changing their secrets",
        api={
            "POST /senders": SENDER,
            "PATCH /senders/{mailgun_id}": {"signing_key": "another"},
            "POST /senders/{sender_id}/rotate": None,
        },
        pages={
            f"GET {_SENDERS}/new": {},
            f"POST {_SENDERS}/new": SENDER,
            f"GET {_SENDERS}/{{sender_id}}/rotate": {},
            f"POST {_SENDERS}/{{sender_id}}/rotate": {},
        },
    ),
    RecentAct(
        "giving programs access",
        pages={
            "GET /oauth/authorize": {},
            "POST /oauth/authorize": {"decision": "allow", "scope.credit.read": "on"},
        },
    ),
    RecentAct(
        "changing password or address",
        pages={
            "GET /account/password": {},
            "POST /account/password": {"password": "x"},
            "GET /account/email": {},
            "POST /account/email": {"email": "x"},
            "GET /account/email/confirm": {},
            "POST /account/email/confirm": {},
        },
    ),
    RecentAct(
        "changing second factors",
        pages={
            "GET /account/factors/app": {},
            "POST /account/factors/app": {},
            "GET /account/factors/passkey": {},
            "POST /account/factors/passkey": {},
            "POST /account/factors/codes": {},
            "POST /account/factors": {},
        },
    ),
    RecentAct(
        "exporting",
        "export",
        api={
            "POST /lists/{list_id}/exports": {"kind": "members"},
            "POST /jobs/{job_id}/retry": None,
        },
        pages={
            f"GET {_LIST}/export": {},
            f"POST {_LIST}/export": {"format": "csv"},
            "GET /console/exports/{export_id}/file": {},
        },
    ),
    RecentAct(
        "removing many members at once",
        "remove members in bulk",
        api={"POST /lists/{list_id}/members/bulk": REMOVAL},
        pages={BULK_FORM: {"action": "remove", "filter": json.dumps(EVERYBODY)}},
    ),
    RecentAct(
        "undoing imports",
        "undo an import",
        api={"DELETE /imports/{import_id}/members": None},
        pages={
            "GET /console/imports/{import_id}/undo": {},
            "POST /console/imports/{import_id}/undo": {},
        },
    ),
    RecentAct(
        "opening the rows that an import did not add",
        "open the rows that an import rejected",
        pages={"GET /console/imports/{import_id}/not-added": {}},
    ),
    RecentAct(
        "making links to encrypted files",
        "create a link to an encrypted file",
        api={"POST /attachments/{hash_id}/links": {"expires_in": 3600}},
        pages={f"GET {_IMAGE}/link": {}, f"POST {_IMAGE}/link": {"lasts": "3600"}},
    ),
    RecentAct(
        "revoking the trace ids of a list",
        "revoke trace ids",
        api={"DELETE /lists/{list_id}/traces": None},
    ),
    RecentAct(
        "changes by an operator",
        pages={
            f"POST {_OPERATORS}/texts": {},
            f"POST {_OPERATORS}/users/{{user_id}}": {},
            f"POST {_OPERATORS}/orders/{{list_id}}": {},
            f"POST {_OPERATORS}/jobs/{{job_id}}": {},
            f"POST {_OPERATORS}/maintenance": {},
        },
    ),
)
API = {route: body for act in RECENT_ACTS for route, body in act.api.items()}
PAGES = {route: form for act in RECENT_ACTS for route, form in act.pages.items()}


def anonymous(routes: Iterable[str]) -> set[str]:
    """The routes without the names of their parameters."""
    return {re.sub(r"\{\w+\}", "{}", route) for route in routes}


def depends_on_recent_login(dependant: Dependant) -> bool:
    qualified_name = getattr(dependant.call, "__qualname__", "")
    is_check = qualified_name.startswith(f"{depend_on_recent.__name__}.")
    return is_check or any(depends_on_recent_login(each) for each in dependant.dependencies)


def test_recent_login_tests_cover_every_route_that_requires_a_recent_login() -> None:
    routes = [*list_api_routes(create_app(Settings.model_construct()))]
    named = [
        (f"{method} {route.path_format}", route)
        for route in routes
        for method in route.methods or ()
    ]
    checked = {name for name, route in named if depends_on_recent_login(route.dependant)}
    documented = {name for name, route in named if "auth.login_again" in str(route.responses)}
    assert anonymous(documented) == anonymous(API)
    # These routes require a recent login without this dependency.
    others = {"GET /oauth/authorize", "POST /oauth/authorize", BULK_FORM}
    assert anonymous(checked | others) == anonymous(PAGES)


def test_every_form_that_requires_a_recent_login_has_a_page_at_its_path() -> None:
    """After a repeated login, the browser requests the path of the form with GET."""
    routes = list_api_routes(create_app(Settings.model_construct()))
    pages = {str(route.path_format) for route in routes if "GET" in (route.methods or ())}
    forms = {name.removeprefix("POST ") for name in PAGES if name.startswith("POST ")}
    assert anonymous(forms) <= anonymous(pages)


def test_recent_login_tests_cover_exactly_the_documented_actions() -> None:
    accounts = (REPOSITORY / "docs/accounts.md").read_text()
    [acts] = re.findall(
        r"These actions require a login within the last 15 minutes:\n\n((?:- .*\n)+)", accounts
    )
    assert re.findall(r"- (.*)", acts) == [each.documented for each in RECENT_ACTS]
    security = " ".join((REPOSITORY / "SECURITY.md").read_text().split())
    [promises] = re.findall(
        r"A session whose login is older than 15 minutes can't (.*?)\. ", security
    )
    promised = {each.promised for each in RECENT_ACTS} - {""}
    assert set(re.split(r", or |, ", promises)) == promised


@dataclass
class Attempts:
    """An owner who is an operator too, with a thing of each kind that the acts name."""

    stack: Stack
    owner: OwnerAtConsole
    values: dict[str, Any]
    consent: str

    @property
    def session(self) -> httpx2.Client:
        return self.owner.visitor.client

    def age(self, minutes: int) -> None:
        age_logins(self.stack, self.owner.owner.email, minutes)

    def call(self, client: httpx2.Client, route: str) -> httpx2.Response:
        method, path = route.split(" ")
        headers = {"Origin": self.stack.api_url}
        path = path.format(**self.values)
        return client.request(method, path, json=API[route], headers=headers)

    def visit(self, route: str, csrf_token: str) -> httpx2.Response:
        method, path = route.split(" ")
        url = self.consent if path == "/oauth/authorize" else path.format(**self.values)
        form = {"csrf_token": csrf_token, **PAGES[route]} if method == "POST" else None
        return self.session.request(method, url, data=form)

    def made(self) -> list[tuple[object, ...]]:
        """Count what the owner has of each kind of thing that outlasts a session."""
        tables = ("api_keys", "webhook_endpoints", "senders", "oauth_grants", "exports", "jobs")
        counts = [f"(SELECT count(*) FROM {table} WHERE user_id = %s)" for table in tables]
        user_ids = [self.owner.owner.user_id] * len(tables)
        return self.stack.query(f"SELECT {', '.join(counts)}", *user_ids)


@pytest.fixture(scope="module")
def attempts(stack: Stack) -> Iterator[Attempts]:
    with at_operators_console(stack) as owner:
        program = owner.api
        list_id = new_list(program)["id"]
        job = data(program.post(f"/lists/{list_id}/exports", json={"kind": "members"}))
        values = {
            "list_id": list_id,
            "user_id": owner.owner.user_id,
            "hash_id": data(send(program, photo(), "a.jpg", encrypted="1"))["hash_id"],
            "endpoint_id": data(program.post("/webhook-endpoints", json=HOOK))["id"],
            "sender_id": data(program.post("/senders", json=SENDER))["id"],
            "mailgun_id": data(program.post("/senders", json=MAILGUN))["id"],
            "job_id": job["id"],
            "export_id": job["result"]["export_id"],
            "import_id": imported(program, list_id, of_addresses("a@example.com"))["import_id"],
        }
        yield Attempts(stack, owner, values, register(stack).request("credit.read"))


def test_session_with_old_login_is_rejected_by_every_route_that_requires_a_recent_login(
    attempts: Attempts,
) -> None:
    csrf_token = attempts.owner.visitor.csrf_token()
    before = attempts.made()
    attempts.age(15)
    for route in API:
        problem(attempts.call(attempts.session, route), 403, "auth.login_again")
    for route in PAGES:
        reply = attempts.visit(route, csrf_token)
        if route == BULK_FORM:
            # The response is the form itself, so that the selection of members isn't lost.
            assert "This request requires a login within the last 15 minutes" in shown(reply, 403)
        else:
            assert reply.status_code == 303, route
            assert "/login?again=yes&next=" in reply.headers["location"], route
    assert attempts.made() == before
    # Old URLs of an image page state the lifetime of a link in the query. They create no link now.
    image = attempts.owner.see(f"/console/images/{attempts.values['hash_id']}", link="604800")
    assert "signature=" not in image


def test_bulk_action_that_removes_nobody_requires_no_recent_login(attempts: Attempts) -> None:
    attempts.age(15)
    bulk = f"/lists/{attempts.values['list_id']}/members/bulk"
    headers = {"Origin": attempts.stack.api_url}
    client = attempts.session
    data(client.post(bulk, json=REMOVAL, params={"dry_run": 1}, headers=headers))
    email_off = {"filter": EVERYBODY, "action": "email_off"}
    data(client.post(bulk, json=email_off, headers=headers), 202)


def test_api_keys_and_recent_sessions_can_perform_all_protected_actions(attempts: Attempts) -> None:
    for client, minutes in ((attempts.owner.api, 15), (attempts.session, 14)):
        attempts.age(minutes)
        for route in API:
            reply = attempts.call(client, route)
            if route == "POST /jobs/{job_id}/retry":
                problem(reply, 409, "job.not_retryable")
            else:
                data(reply, 200, 202)
    csrf_token = attempts.owner.visitor.csrf_token()
    for route in PAGES:
        # Submitting the account forms would end this session.
        if not route.startswith("POST /account"):
            reply = attempts.visit(route, csrf_token)
            assert reply.status_code < 500
            assert "again=yes" not in reply.headers.get("location", ""), route


def test_bulk_action_form_asks_for_a_recent_login_and_keeps_the_chosen_action(stack: Stack) -> None:
    with at_console(stack) as owner:
        list_id = new_list(owner.api)["id"]
        age_logins(stack, owner.owner.email, 15)
        path = f"/console/lists/{list_id}/bulk-actions/new"
        reply = owner.send(path, action="remove")
        assert "This request requires a login within the last 15 minutes" in shown(reply, 403)
        assert forms_of(reply)[0][1]["action"] == "remove"
        assert heading(owner.do(path, action="email_off")) == "Turn mail off"


def test_session_reads_smaller_member_pages_and_many_pages_raise_a_security_event(
    stack: Stack, logged_in_visitor: Visitor, email: str
) -> None:
    with stack.client(stack.create_key(user_id_of(stack, email))) as program:
        list_id = new_list(program)["id"]
        fill(stack, list_id, [new_reader() for _ in range(MAX_MEMBERS_PER_SESSION_PAGE + 1)])
        path = f"/lists/{list_id}/subscriptions"
        search = f"/lists/{list_id}/members/search"
        body = {"filter": EVERYBODY, "limit": 1000}
        origin = {"Origin": stack.api_url}

        def listed(by: httpx2.Client, **more: str) -> httpx2.Response:
            return by.get(path, params={"limit": "1000", **more})

        def searched(by: httpx2.Client, **more: str) -> httpx2.Response:
            return by.post(search, json={**body, **more}, headers=origin)

        for read in (listed, searched):
            assert len(data(read(program))["items"]) == MAX_MEMBERS_PER_SESSION_PAGE + 1
            first = data(read(logged_in_visitor.client))
            assert (
                len(first["items"]) == first["pagination"]["limit"] == MAX_MEMBERS_PER_SESSION_PAGE
            )
            cursor = first["pagination"]["next_cursor"]
            assert len(data(read(logged_in_visitor.client, cursor=cursor))["items"]) == 1

        events = data(logged_in_visitor.client.get("/events", params={"limit": 1000}))
        assert events["pagination"]["limit"] == MAX_MEMBERS_PER_SESSION_PAGE
        assert data(program.get("/events", params={"limit": 1000}))["pagination"]["limit"] == 1000

        def noted() -> list[dict[str, object]]:
            found = data(program.get("/users/me/security-events"))["items"]
            return [each["detail"] for each in found if each["type"] == "members.read"]

        # Whichever windows of an hour the pages fall into: a program's don't count.
        for _ in range(MAX_PAGES_PER_HOUR - 5):
            data(program.get(path, params={"limit": 1}))
            data(logged_in_visitor.get(path, limit="1"))
        assert noted() == []
        for _ in range(2):
            assert logged_in_visitor.get(f"/console/lists/{list_id}/members").status_code == 200
        assert noted() == [{"pages": MAX_PAGES_PER_HOUR}]


def test_session_with_old_login_gets_no_export_file_url_and_cannot_retry_exports(
    stack: Stack, logged_in_visitor: Visitor, email: str
) -> None:
    origin = {"Origin": stack.api_url}
    with stack.client(stack.create_key(user_id_of(stack, email))) as program:
        list_id = new_list(program)["id"]
        job = data(program.post(f"/lists/{list_id}/exports", json={"kind": "members"}))
        path = f"/jobs/{job['id']}"
        assert data(logged_in_visitor.get(path))["result"]["url"]
        age_logins(stack, email, 15)
        for record in (
            data(logged_in_visitor.get(path)),
            data(logged_in_visitor.get("/jobs"))["items"][0],
        ):
            assert record["result"] == {**job["result"], "url": None}
        assert '"url":null' in logged_in_visitor.get(f"{path}/events").text
        assert data(program.get(path))["result"]["url"]
        retry = logged_in_visitor.client.post(f"{path}/retry", headers=origin)
        problem(retry, 403, "auth.login_again")
        problem(program.post(f"{path}/retry"), 409, "job.not_retryable")


def test_session_with_old_login_cannot_open_rejected_import_rows(stack: Stack) -> None:
    with at_console(stack) as owner:
        list_id = new_list(owner.api)["id"]
        imported(owner.api, list_id, of_addresses("nobody@", "a@example.com"))
        job_id = data(owner.api.get("/jobs"))["items"][0]["id"]
        import_id = data(owner.api.get("/imports"))["items"][0]["id"]
        paths = ("/imports", "/jobs", f"/imports/{import_id}", f"/jobs/{job_id}")

        def urls(client: httpx2.Client) -> list[str]:
            answers = [data(client.get(path)) for path in paths]
            records = [each["items"][0] if "items" in each else each for each in answers]
            return [(each.get("result") or each)["errors_url"] for each in records]

        session = owner.visitor.client
        for url in urls(session):
            assert "nobody@" in httpx2.get(url).text
        age_logins(stack, owner.owner.email, 15)
        for url in urls(session):
            problem(httpx2.get(url), 403, "link.invalid")
        for url in urls(owner.api):
            assert "nobody@" in httpx2.get(url).text


@pytest.mark.parametrize(
    "path",
    [
        "/account/password",
        "/account/email",
        "/console/developers/keys/new",
        "/account/email/confirm?token=x",
    ],
)
def test_person_returns_to_the_requested_page_after_a_repeated_login(
    stack: Stack, logged_in_visitor: Visitor, email: str, path: str
) -> None:
    fresh = logged_in_visitor.get(path).status_code
    age_logins(stack, email, 15)
    for reply in (
        logged_in_visitor.get(path),
        logged_in_visitor.client.post(path, data={"csrf_token": logged_in_visitor.csrf_token()}),
    ):
        assert reply.status_code == 303
        asked = reply.headers["location"].removeprefix(stack.api_url)
        assert asked.startswith("/login?again=yes&next=")
        shown = logged_in_visitor.get(asked)
        assert email in shown.text
        assert "Log in again to continue" in shown.text
    wrong = logged_in_visitor.fill_in(asked, email=email, password="not the password")
    assert wrong.status_code == 403
    assert "Log in again to continue" in wrong.text
    before = logged_in_visitor.cookie
    passed = logged_in_visitor.fill_in(asked, email=email, password=PASSWORD)
    assert passed.headers["location"] == stack.api_url + path
    assert logged_in_visitor.cookie != before
    assert logged_in_visitor.get(path).status_code == fresh


def test_oauth_consent_requires_a_recent_login_and_then_returns_to_the_client(
    stack: Stack, logged_in_visitor: Visitor, email: str
) -> None:
    program = register(stack)
    owner = Person(stack, Owner(user_id_of(stack, email), email, ""), logged_in_visitor.client)
    path = program.request("credit.read")
    form = {"csrf_token": owner.csrf_token(path), "decision": "allow", "scope.credit.read": "on"}
    age_logins(stack, email, 15)
    for reply in (
        logged_in_visitor.client.get(path),
        logged_in_visitor.client.post(path, data=form),
    ):
        assert reply.status_code == 303
        asked = reply.headers["location"]
        assert asked.startswith(f"{stack.api_url}/login?again=yes&next=")
    assert stack.query("SELECT 1 FROM oauth_grants WHERE client_id = %s", program.client_id) == []
    asked = asked.removeprefix(stack.api_url)
    passed = logged_in_visitor.fill_in(asked, email=email, password=PASSWORD)
    assert passed.headers["location"] == stack.api_url + path
    given = owner.answer(path, "credit.read")
    assert "code" in fields_of(given.headers["location"])


def test_every_new_api_key_is_reported_by_mail(
    stack: Stack, logged_in_visitor: Visitor, email: str
) -> None:
    origin = {"Origin": stack.api_url}
    name = "look at https://evil.example"
    first = data(logged_in_visitor.client.post("/apikeys", json={"name": name}, headers=origin))
    told = logged_in_visitor.mailed(email, "Your account has a new API key")
    assert first["last_four"] in told
    assert first["key"] not in told
    assert "evil" not in told
    with stack.client(first["key"]) as program:
        second = data(program.post("/apikeys", json={"name": "second"}))
    assert second["last_four"] in logged_in_visitor.mailed(
        email, "Your account has a new API key", number=2
    )


def test_new_oauth_client_and_additional_scopes_are_reported_by_mail(
    stack: Stack, logged_in_visitor: Visitor, email: str
) -> None:
    program = register(stack, name="Ledger reader")
    owner = Person(stack, Owner(user_id_of(stack, email), email, ""), logged_in_visitor.client)
    subject = "An app has access to your account"
    program.tokens(owner, "credit.read")
    assert "Ledger reader" in logged_in_visitor.mailed(email, subject)
    program.tokens(owner, "credit.read")
    program.tokens(owner, "attachment")
    logged_in_visitor.mailed(email, subject, number=2)
    kept = stack.query(
        "SELECT count(*) FROM account_mails WHERE email = %s AND kind = 'new_program'", email
    )
    assert kept == [(2,)]


def test_first_login_in_a_new_browser_is_reported_by_one_mail(stack: Stack, email: str) -> None:
    subject = "New login to your account"
    count = "SELECT count(*) FROM account_mails WHERE email = %s AND kind = 'new_browser'"
    with a_visitor(stack) as visitor:
        visitor.client.headers["User-Agent"] = "Mozilla/5.0 (X11; Linux) Firefox/140.0"
        assert visitor.log_in(email, "not the password").status_code == 403
        assert stack.query(count, email) == [(0,)]
        visitor.log_in(email)
        assert "Firefox on Linux" in visitor.mailed(email, subject)
        form = {"csrf_token": visitor.csrf_token()}
        assert visitor.client.post("/logout", data=form).status_code == 303
        visitor.log_in(email)
        assert stack.query(count, email) == [(1,)]
        # To another person of the same browser it is new.
        other = new_account(stack)
        visitor.client.post("/logout", data={"csrf_token": visitor.csrf_token()})
        visitor.log_in(other)
        visitor.mailed(other, subject)
