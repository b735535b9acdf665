"""Tests that sessions need a recent login for actions whose effect outlasts the session."""

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
ALL_MEMBERS_FILTER = {"field": "email", "exists": True}


@dataclass(frozen=True)
class ProtectedAction:
    """An action that needs a recent login, and all routes by which a session can perform it.

    Attributes:
        documented: the action in docs/accounts.md.
        promised: the action in SECURITY.md, if that page names it.
        api: maps the operations of the API to their JSON bodies.
        pages: maps the routes of pages to their forms.
    """

    documented: str
    promised: str = ""
    api: dict[str, Any] = field(default_factory=dict)
    pages: dict[str, dict[str, str]] = field(default_factory=dict)


SENDER_BODY = {"name": "Ours", "provider": "generic"}
MAILGUN_BODY = {"name": "Theirs", "provider": "mailgun", "signing_key": "k"}
_SENDERS_PATH = "/console/developers/senders"
WEBHOOK_BODY = {"url": "http://127.0.0.1:9/hook", "types": ["subscription.created"]}
REMOVAL_BODY = {"filter": ALL_MEMBERS_FILTER, "action": "remove"}
_LIST_PATH = "/console/lists/{list_id}"
_IMAGE_PATH = "/console/images/{hash_id}"
_WEBHOOKS_PATH = "/console/developers/webhooks"
_OPERATORS_PATH = "/console/operators"
BULK_ACTION_ROUTE = f"POST {_LIST_PATH}/bulk-actions/new"
# The order matters, because the test makes one owner perform all of these actions in turn.
PROTECTED_ACTIONS = (
    ProtectedAction(
        "making API keys",
        api={"POST /apikeys": {"name": "k"}},
        pages={
            "GET /console/developers/keys/new": {},
            "POST /console/developers/keys/new": {"name": "k", "reach": "all", "lifetime": "90"},
        },
    ),
    ProtectedAction(
        "making or changing webhook endpoints",
        api={
            "POST /webhook-endpoints": WEBHOOK_BODY,
            "PATCH /webhook-endpoints/{endpoint_id}": {"url": f"{WEBHOOK_BODY['url']}/2"},
            "POST /webhook-endpoints/{endpoint_id}/rotate": None,
        },
        pages={
            f"GET {_WEBHOOKS_PATH}/new": {},
            f"POST {_WEBHOOKS_PATH}/new": {"url": "http://127.0.0.1:9/hook"},
            f"GET {_WEBHOOKS_PATH}/{{endpoint_id}}/change": {},
            f"POST {_WEBHOOKS_PATH}/{{endpoint_id}}/change": {"url": "http://127.0.0.1:9/3"},
            f"POST {_WEBHOOKS_PATH}/{{endpoint_id}}/state": {"state": "active"},
            f"GET {_WEBHOOKS_PATH}/{{endpoint_id}}/rotate": {},
            f"POST {_WEBHOOKS_PATH}/{{endpoint_id}}/rotate": {},
        },
    ),
    ProtectedAction(
        "making senders or changing their secrets",
        api={
            "POST /senders": SENDER_BODY,
            "PATCH /senders/{mailgun_id}": {"signing_key": "another"},
            "POST /senders/{sender_id}/rotate": None,
        },
        pages={
            f"GET {_SENDERS_PATH}/new": {},
            f"POST {_SENDERS_PATH}/new": SENDER_BODY,
            f"GET {_SENDERS_PATH}/{{sender_id}}/rotate": {},
            f"POST {_SENDERS_PATH}/{{sender_id}}/rotate": {},
        },
    ),
    ProtectedAction(
        "giving programs access",
        pages={
            "GET /oauth/authorize": {},
            "POST /oauth/authorize": {"decision": "allow", "scope.credit.read": "on"},
        },
    ),
    ProtectedAction(
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
    ProtectedAction(
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
    ProtectedAction(
        "exporting",
        "export",
        api={
            "POST /lists/{list_id}/exports": {"kind": "members"},
            "POST /jobs/{job_id}/retry": None,
        },
        pages={
            f"GET {_LIST_PATH}/export": {},
            f"POST {_LIST_PATH}/export": {"format": "csv"},
            "GET /console/exports/{export_id}/file": {},
        },
    ),
    ProtectedAction(
        "removing many members at once",
        "remove members in bulk",
        api={"POST /lists/{list_id}/members/bulk": REMOVAL_BODY},
        pages={BULK_ACTION_ROUTE: {"action": "remove", "filter": json.dumps(ALL_MEMBERS_FILTER)}},
    ),
    ProtectedAction(
        "undoing imports",
        "undo an import",
        api={"DELETE /imports/{import_id}/members": None},
        pages={
            "GET /console/imports/{import_id}/undo": {},
            "POST /console/imports/{import_id}/undo": {},
        },
    ),
    ProtectedAction(
        "opening the rows that an import did not add",
        "open the rows that an import rejected",
        pages={"GET /console/imports/{import_id}/not-added": {}},
    ),
    ProtectedAction(
        "making links to encrypted files",
        "create a link to an encrypted file",
        api={"POST /attachments/{hash_id}/links": {"expires_in": 3600}},
        pages={f"GET {_IMAGE_PATH}/link": {}, f"POST {_IMAGE_PATH}/link": {"lasts": "3600"}},
    ),
    ProtectedAction(
        "revoking the trace ids of a list",
        "revoke trace ids",
        api={"DELETE /lists/{list_id}/traces": None},
    ),
    ProtectedAction(
        "changes by an operator",
        pages={
            f"POST {_OPERATORS_PATH}/texts": {},
            f"POST {_OPERATORS_PATH}/users/{{user_id}}": {},
            f"POST {_OPERATORS_PATH}/orders/{{list_id}}": {},
            f"POST {_OPERATORS_PATH}/jobs/{{job_id}}": {},
            f"POST {_OPERATORS_PATH}/maintenance": {},
        },
    ),
)
API_BODIES = {route: body for act in PROTECTED_ACTIONS for route, body in act.api.items()}
PAGE_FORMS = {route: form for act in PROTECTED_ACTIONS for route, form in act.pages.items()}


def remove_parameter_names(routes: Iterable[str]) -> set[str]:
    """Return the routes without the names of their parameters."""
    return {re.sub(r"\{\w+\}", "{}", route) for route in routes}


def depends_on_recent_login(dependant: Dependant) -> bool:
    qualified_name = getattr(dependant.call, "__qualname__", "")
    is_check = qualified_name.startswith(f"{depend_on_recent.__name__}.")
    return is_check or any(depends_on_recent_login(each) for each in dependant.dependencies)


def test_recent_login_tests_cover_every_route_that_requires_a_recent_login() -> None:
    routes = [*list_api_routes(create_app(Settings.model_construct()))]
    named_routes = [
        (f"{method} {route.path_format}", route)
        for route in routes
        for method in route.methods or ()
    ]
    checked_routes = {
        name for name, route in named_routes if depends_on_recent_login(route.dependant)
    }
    documented_routes = {
        name for name, route in named_routes if "auth.login_again" in str(route.responses)
    }
    assert remove_parameter_names(documented_routes) == remove_parameter_names(API_BODIES)
    # These routes require a recent login without this dependency.
    routes_without_dependency = {"GET /oauth/authorize", "POST /oauth/authorize", BULK_ACTION_ROUTE}
    assert remove_parameter_names(
        checked_routes | routes_without_dependency
    ) == remove_parameter_names(PAGE_FORMS)


def test_every_form_that_requires_a_recent_login_has_a_page_at_its_path() -> None:
    """After a repeated login, the browser requests the path of the form with GET."""
    routes = list_api_routes(create_app(Settings.model_construct()))
    pages = {str(route.path_format) for route in routes if "GET" in (route.methods or ())}
    forms = {name.removeprefix("POST ") for name in PAGE_FORMS if name.startswith("POST ")}
    assert remove_parameter_names(forms) <= remove_parameter_names(pages)


def test_recent_login_tests_cover_exactly_the_documented_actions() -> None:
    accounts_page = (REPOSITORY / "docs/accounts.md").read_text()
    [actions] = re.findall(
        r"These actions require a login within the last 15 minutes:\n\n((?:- .*\n)+)", accounts_page
    )
    assert re.findall(r"- (.*)", actions) == [each.documented for each in PROTECTED_ACTIONS]
    security_page = " ".join((REPOSITORY / "SECURITY.md").read_text().split())
    [promise_list] = re.findall(
        r"A session whose login is older than 15 minutes can't (.*?)\. ", security_page
    )
    promised_actions = {each.promised for each in PROTECTED_ACTIONS} - {""}
    assert set(re.split(r", or |, ", promise_list)) == promised_actions


@dataclass
class ProtectedAccount:
    """An owner who is also an operator, with one object of each kind that the actions need."""

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
        return client.request(method, path, json=API_BODIES[route], headers=headers)

    def visit(self, route: str, csrf_token: str) -> httpx2.Response:
        method, path = route.split(" ")
        url = self.consent if path == "/oauth/authorize" else path.format(**self.values)
        form = {"csrf_token": csrf_token, **PAGE_FORMS[route]} if method == "POST" else None
        return self.session.request(method, url, data=form)

    def count_objects(self) -> list[tuple[object, ...]]:
        """Count the owner's objects of each kind that outlasts a session."""
        tables = ("api_keys", "webhook_endpoints", "senders", "oauth_grants", "exports", "jobs")
        counts = [f"(SELECT count(*) FROM {table} WHERE user_id = %s)" for table in tables]
        user_ids = [self.owner.owner.user_id] * len(tables)
        return self.stack.query(f"SELECT {', '.join(counts)}", *user_ids)


@pytest.fixture(scope="module")
def protected_account(stack: Stack) -> Iterator[ProtectedAccount]:
    with at_operators_console(stack) as owner:
        program = owner.api
        list_id = new_list(program)["id"]
        job = data(program.post(f"/lists/{list_id}/exports", json={"kind": "members"}))
        values = {
            "list_id": list_id,
            "user_id": owner.owner.user_id,
            "hash_id": data(send(program, photo(), "a.jpg", encrypted="1"))["hash_id"],
            "endpoint_id": data(program.post("/webhook-endpoints", json=WEBHOOK_BODY))["id"],
            "sender_id": data(program.post("/senders", json=SENDER_BODY))["id"],
            "mailgun_id": data(program.post("/senders", json=MAILGUN_BODY))["id"],
            "job_id": job["id"],
            "export_id": job["result"]["export_id"],
            "import_id": imported(program, list_id, of_addresses("a@example.com"))["import_id"],
        }
        yield ProtectedAccount(stack, owner, values, register(stack).request("credit.read"))


def test_session_with_old_login_is_rejected_by_every_route_that_requires_a_recent_login(
    protected_account: ProtectedAccount,
) -> None:
    csrf_token = protected_account.owner.visitor.csrf_token()
    counts_before = protected_account.count_objects()
    protected_account.age(15)
    for route in API_BODIES:
        problem(protected_account.call(protected_account.session, route), 403, "auth.login_again")
    for route in PAGE_FORMS:
        reply = protected_account.visit(route, csrf_token)
        if route == BULK_ACTION_ROUTE:
            # The response is the form itself, so that the selection of members isn't lost.
            assert "This request requires a login within the last 15 minutes" in shown(reply, 403)
        else:
            assert reply.status_code == 303, route
            assert "/login?again=yes&next=" in reply.headers["location"], route
    assert protected_account.count_objects() == counts_before
    # Old URLs of an image page state the lifetime of a link in the query. They create no link now.
    image_page = protected_account.owner.see(
        f"/console/images/{protected_account.values['hash_id']}", link="604800"
    )
    assert "signature=" not in image_page


def test_bulk_action_that_removes_nobody_requires_no_recent_login(
    protected_account: ProtectedAccount,
) -> None:
    protected_account.age(15)
    bulk_path = f"/lists/{protected_account.values['list_id']}/members/bulk"
    headers = {"Origin": protected_account.stack.api_url}
    client = protected_account.session
    data(client.post(bulk_path, json=REMOVAL_BODY, params={"dry_run": 1}, headers=headers))
    email_off = {"filter": ALL_MEMBERS_FILTER, "action": "email_off"}
    data(client.post(bulk_path, json=email_off, headers=headers), 202)


def test_api_keys_and_recent_sessions_can_perform_all_protected_actions(
    protected_account: ProtectedAccount,
) -> None:
    for client, minutes in ((protected_account.owner.api, 15), (protected_account.session, 14)):
        protected_account.age(minutes)
        for route in API_BODIES:
            reply = protected_account.call(client, route)
            if route == "POST /jobs/{job_id}/retry":
                problem(reply, 409, "job.not_retryable")
            else:
                data(reply, 200, 202)
    csrf_token = protected_account.owner.visitor.csrf_token()
    for route in PAGE_FORMS:
        # Submitting the account forms would end this session.
        if not route.startswith("POST /account"):
            reply = protected_account.visit(route, csrf_token)
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
        body = {"filter": ALL_MEMBERS_FILTER, "limit": 1000}
        origin = {"Origin": stack.api_url}

        def list_members(caller: httpx2.Client, **options: str) -> httpx2.Response:
            return caller.get(path, params={"limit": "1000", **options})

        def search_members(caller: httpx2.Client, **options: str) -> httpx2.Response:
            return caller.post(search, json={**body, **options}, headers=origin)

        for read in (list_members, search_members):
            assert len(data(read(program))["items"]) == MAX_MEMBERS_PER_SESSION_PAGE + 1
            first_page = data(read(logged_in_visitor.client))
            assert (
                len(first_page["items"])
                == first_page["pagination"]["limit"]
                == MAX_MEMBERS_PER_SESSION_PAGE
            )
            cursor = first_page["pagination"]["next_cursor"]
            assert len(data(read(logged_in_visitor.client, cursor=cursor))["items"]) == 1

        events = data(logged_in_visitor.client.get("/events", params={"limit": 1000}))
        assert events["pagination"]["limit"] == MAX_MEMBERS_PER_SESSION_PAGE
        assert data(program.get("/events", params={"limit": 1000}))["pagination"]["limit"] == 1000

        def list_read_events() -> list[dict[str, object]]:
            security_events = data(program.get("/users/me/security-events"))["items"]
            return [each["detail"] for each in security_events if each["type"] == "members.read"]

        # Only pages that the session reads count. Pages that a program reads with a key don't.
        for _ in range(MAX_PAGES_PER_HOUR - 5):
            data(program.get(path, params={"limit": 1}))
            data(logged_in_visitor.get(path, limit="1"))
        assert list_read_events() == []
        for _ in range(2):
            assert logged_in_visitor.get(f"/console/lists/{list_id}/members").status_code == 200
        assert list_read_events() == [{"pages": MAX_PAGES_PER_HOUR}]


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
        retry_reply = logged_in_visitor.client.post(f"{path}/retry", headers=origin)
        problem(retry_reply, 403, "auth.login_again")
        problem(program.post(f"{path}/retry"), 409, "job.not_retryable")


def test_session_with_old_login_cannot_open_rejected_import_rows(stack: Stack) -> None:
    with at_console(stack) as owner:
        list_id = new_list(owner.api)["id"]
        imported(owner.api, list_id, of_addresses("nobody@", "a@example.com"))
        job_id = data(owner.api.get("/jobs"))["items"][0]["id"]
        import_id = data(owner.api.get("/imports"))["items"][0]["id"]
        paths = ("/imports", "/jobs", f"/imports/{import_id}", f"/jobs/{job_id}")

        def read_error_urls(client: httpx2.Client) -> list[str]:
            replies = [data(client.get(path)) for path in paths]
            records = [each["items"][0] if "items" in each else each for each in replies]
            return [(each.get("result") or each)["errors_url"] for each in records]

        session = owner.visitor.client
        for url in read_error_urls(session):
            assert "nobody@" in httpx2.get(url).text
        age_logins(stack, owner.owner.email, 15)
        for url in read_error_urls(session):
            problem(httpx2.get(url), 403, "link.invalid")
        for url in read_error_urls(owner.api):
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
    expected_status = logged_in_visitor.get(path).status_code
    age_logins(stack, email, 15)
    for reply in (
        logged_in_visitor.get(path),
        logged_in_visitor.client.post(path, data={"csrf_token": logged_in_visitor.csrf_token()}),
    ):
        assert reply.status_code == 303
        login_path = reply.headers["location"].removeprefix(stack.api_url)
        assert login_path.startswith("/login?again=yes&next=")
        login_page = logged_in_visitor.get(login_path)
        assert email in login_page.text
        assert "Log in again to continue" in login_page.text
    rejected_login = logged_in_visitor.fill_in(login_path, email=email, password="not the password")
    assert rejected_login.status_code == 403
    assert "Log in again to continue" in rejected_login.text
    cookie_before = logged_in_visitor.cookie
    accepted_login = logged_in_visitor.fill_in(login_path, email=email, password=PASSWORD)
    assert accepted_login.headers["location"] == stack.api_url + path
    assert logged_in_visitor.cookie != cookie_before
    assert logged_in_visitor.get(path).status_code == expected_status


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
        login_url = reply.headers["location"]
        assert login_url.startswith(f"{stack.api_url}/login?again=yes&next=")
    assert stack.query("SELECT 1 FROM oauth_grants WHERE client_id = %s", program.client_id) == []
    login_url = login_url.removeprefix(stack.api_url)
    accepted_login = logged_in_visitor.fill_in(login_url, email=email, password=PASSWORD)
    assert accepted_login.headers["location"] == stack.api_url + path
    consent_reply = owner.answer(path, "credit.read")
    assert "code" in fields_of(consent_reply.headers["location"])


def test_every_new_api_key_is_reported_by_mail(
    stack: Stack, logged_in_visitor: Visitor, email: str
) -> None:
    origin = {"Origin": stack.api_url}
    name = "look at https://evil.example"
    first_key = data(logged_in_visitor.client.post("/apikeys", json={"name": name}, headers=origin))
    mail_text = logged_in_visitor.mailed(email, "Your account has a new API key")
    assert first_key["last_four"] in mail_text
    assert first_key["key"] not in mail_text
    assert "evil" not in mail_text
    with stack.client(first_key["key"]) as program:
        second_key = data(program.post("/apikeys", json={"name": "second"}))
    assert second_key["last_four"] in logged_in_visitor.mailed(
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
    mail_count = stack.query(
        "SELECT count(*) FROM account_mails WHERE email = %s AND kind = 'new_program'", email
    )
    assert mail_count == [(2,)]


def test_first_login_in_a_new_browser_is_reported_by_one_mail(stack: Stack, email: str) -> None:
    subject = "New login to your account"
    count_mails = "SELECT count(*) FROM account_mails WHERE email = %s AND kind = 'new_browser'"
    with a_visitor(stack) as visitor:
        visitor.client.headers["User-Agent"] = "Mozilla/5.0 (X11; Linux) Firefox/140.0"
        assert visitor.log_in(email, "not the password").status_code == 403
        assert stack.query(count_mails, email) == [(0,)]
        visitor.log_in(email)
        assert "Firefox on Linux" in visitor.mailed(email, subject)
        form = {"csrf_token": visitor.csrf_token()}
        assert visitor.client.post("/logout", data=form).status_code == 303
        visitor.log_in(email)
        assert stack.query(count_mails, email) == [(1,)]
        # The browser is new for another person.
        other_email = new_account(stack)
        visitor.client.post("/logout", data={"csrf_token": visitor.csrf_token()})
        visitor.log_in(other_email)
        visitor.mailed(other_email, subject)
