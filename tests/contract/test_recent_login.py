"""Tests that people must have logged in recently to perform actions with a lasting effect."""

import html
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest

from api.app import create_app
from api.auth.interrupted_forms import MAX_FORM_BYTES
from api.auth.requirements import PageAccess
from api.openapi.document import find_access, list_api_routes
from api.pages.login.routes import describe_protected_action
from core.settings import Settings
from devstack import LOOPBACK
from devstack.harness.stack import Owner, Stack
from tests.support.http.replies import data, problem, send
from tests.support.images.pictures import photo
from tests.support.imports.bulk import build_address_file, import_members_file
from tests.support.lists.segments import ALL_MEMBERS_FILTER
from tests.support.lists.subscribers import new_list
from tests.support.people.consoles import (
    OwnerAtConsole,
    at_operators_console,
    forms_of,
    heading,
    read_page,
)
from tests.support.people.oauth import Person, fields_of, register
from tests.support.people.visiting import PASSWORD, Visitor, age_logins, user_id_of

REPOSITORY = Path(__file__).parents[2]


@dataclass(frozen=True)
class ProtectedAction:
    """An action that needs a recent login, and all routes by which a logged-in person performs it.

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
            "GET /console/lists/{list_id}/send/key": {},
            "POST /console/lists/{list_id}/send/key": {"name": "k", "lifetime": "90"},
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
            f"POST {_SENDERS_PATH}/{{mailgun_id}}/rotate": {"signing_key": "another"},
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
    """Return the routes, with each path parameter such as ``{list_id}`` replaced by ``{}``."""
    return {re.sub(r"\{\w+\}", "{}", route) for route in routes}


def test_recent_login_tests_cover_every_route_that_requires_a_recent_login() -> None:
    routes = [*list_api_routes(create_app(Settings.model_construct()))]
    named_routes = [
        (f"{method} {route.path_format}", route)
        for route in routes
        for method in route.methods or ()
    ]
    checked_routes = {
        name
        for name, route in named_routes
        if isinstance(access := find_access(route), PageAccess) and access.is_recent
    }
    documented_routes = {
        name for name, route in named_routes if "auth.login_again" in str(route.responses)
    }
    assert remove_parameter_names(documented_routes) == remove_parameter_names(API_BODIES)
    # The handlers of these routes check the time of the login.
    checking_handlers = {"GET /oauth/authorize", "POST /oauth/authorize", BULK_ACTION_ROUTE}
    assert remove_parameter_names(checked_routes | checking_handlers) == remove_parameter_names(
        PAGE_FORMS
    )


def test_every_form_that_requires_a_recent_login_has_a_page_at_its_path() -> None:
    """If a form requires a login, the browser is redirected to the form's path after the login."""
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
    """An owner who is also an operator, and who has all records that the tested routes need."""

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
        """Count the owner's API keys, webhook endpoints and other objects that outlast a logout."""
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
            "import_id": import_members_file(program, list_id, build_address_file("a@example.com"))[
                "import_id"
            ],
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
        words = describe_protected_action(path)
        expected = f"To {words}, enter your password. Your last login was more than 15 minutes ago."
        assert expected in html.unescape(login_page.text)
        # Nobody has to type the address again.
        visible_inputs = [
            each
            for each in re.findall("<input [^>]*>", login_page.text)
            if 'type="hidden"' not in each and not each.endswith(" hidden>")
        ]
        assert len(visible_inputs) == 1
        assert 'name="password"' in visible_inputs[0]
    rejected_login = logged_in_visitor.fill_in(login_path, email=email, password="not the password")
    assert rejected_login.status_code == 403
    assert "Wrong password." in rejected_login.text
    assert "Your last login was more than 15 minutes ago." in rejected_login.text
    cookie_before = logged_in_visitor.cookie
    accepted_login = logged_in_visitor.fill_in(login_path, email=email, password=PASSWORD)
    assert accepted_login.headers["location"] == stack.api_url + path
    assert logged_in_visitor.cookie != cookie_before
    assert logged_in_visitor.get(path).status_code == expected_status


def test_login_page_names_each_action_that_requires_a_recent_login() -> None:
    for route in PAGE_FORMS:
        path = re.sub(r"\{\w+\}", "4711", route.partition(" ")[2])
        assert describe_protected_action(f"{path}?x=/y") != "continue", route
    assert describe_protected_action("/console/lists/4711/members") == "continue"
    assert describe_protected_action(None) == "continue"


FORM_NOTICE = "Check the form, then submit it again."


def interrupt_form(console: OwnerAtConsole, path: str, **typed: str) -> str:
    """Submit a form 15 minutes after the login, and return the path of the login page."""
    page = console.visitor.get(path)
    assert page.status_code == 200, page.text
    age_logins(console.visitor.stack, console.owner.email, 15)
    _, values = forms_of(page)[0]
    reply = console.visitor.client.post(path, data={**values, **typed})
    assert reply.status_code == 303
    return reply.headers["location"].removeprefix(console.visitor.stack.api_url)


def log_in_again(console: OwnerAtConsole) -> None:
    """Log in as a new session, with the cookies of the browser."""
    console.visitor.enter(console.owner.email)


@pytest.mark.parametrize(
    ("path", "typed"),
    [
        ("/console/lists/{list_id}/export", {"format": "jsonl", "status_active": "on"}),
        ("/console/developers/keys/new", {"name": "Press & more", "lifetime": "30"}),
        ("/console/developers/senders/new?provider=generic", {"name": "Ours"}),
        ("/console/developers/webhooks/new", {"url": "https://example.com/hook?a=1&b=é"}),
    ],
)
def test_form_shows_what_was_typed_after_the_login_that_it_required(
    stack: Stack, console: OwnerAtConsole, path: str, typed: dict[str, str]
) -> None:
    path = path.format(list_id=new_list(console.api)["id"])
    first_values = forms_of(console.visitor.get(path))[0][1]
    interrupt_form(console, path, **typed)
    # The cookie is encrypted, because it can contain a secret.
    [cookie] = [v for k, v in console.visitor.client.cookies.items() if "interrupted" in k]
    assert not any(value in cookie for value in typed.values() if len(value) > 2)
    log_in_again(console)
    reply = console.visitor.get(path)
    assert FORM_NOTICE in read_page(reply)
    shown_values = forms_of(reply)[0][1]
    assert shown_values.items() >= typed.items()
    # The form isn't sent by itself, and its values are forgotten.
    for table in ("api_keys", "exports", "senders", "webhook_endpoints"):
        query = f"SELECT count(*) FROM {table} WHERE user_id = %s"
        # The owner has one key, with which this test calls the API.
        expected_count = 1 if table == "api_keys" else 0
        assert stack.query(query, console.owner.user_id) == [(expected_count,)]
    assert forms_of(console.visitor.get(path))[0][1].keys() == first_values.keys()
    assert FORM_NOTICE not in console.see(path)


def test_bulk_removal_continues_after_the_login_that_it_required(console: OwnerAtConsole) -> None:
    path = f"/console/lists/{new_list(console.api)['id']}/bulk-actions/new"
    selection = {"filter": json.dumps(ALL_MEMBERS_FILTER)}
    age_logins(console.visitor.stack, console.owner.email, 15)
    # Only the removal requires a recent login.
    assert heading(console.do(path, action="email_off")) == "Turn mail off"
    action, values = forms_of(console.visitor.get(path, **selection))[0]
    reply = console.visitor.client.post(action, data={**values, "action": "remove"})
    login_url = reply.headers["location"]
    assert "remove members" in console.visitor.client.get(login_url).text
    # The browser returns without a login, or shows another page.
    assert FORM_NOTICE not in console.see(path, **selection)
    console.see("/console")
    log_in_again(console)
    [next_path] = parse_qs(urlsplit(login_url).query)["next"]
    console.see("/console")
    restored_page = console.visitor.client.get(next_path)
    assert FORM_NOTICE in read_page(restored_page)
    restored = forms_of(restored_page)[0][1]
    assert restored["action"] == "remove"
    assert json.loads(restored["filter"]) == ALL_MEMBERS_FILTER
    assert FORM_NOTICE not in console.see(path, **selection)


def test_typed_values_are_shown_only_to_the_same_person_in_the_same_form(
    stack: Stack, console: OwnerAtConsole
) -> None:
    path = "/console/developers/keys/new"
    interrupt_form(console, path, name="Mine")
    cookies = dict(console.visitor.client.cookies)
    [name] = [each for each in cookies if "interrupted" in each]

    def see_with(cookie: str, email: str, other_path: str = path) -> str:
        console.visitor.enter(email)
        console.visitor.client.cookies.set(name, cookie, domain=LOOPBACK, path="/")
        return console.see(other_path)

    assert 'value="Mine"' in see_with(cookies[name], console.owner.email)
    other_owner = stack.create_owner()
    for text in (
        see_with(cookies[name], other_owner.email),
        see_with(cookies[name], console.owner.email, "/console/developers/senders/new"),
        see_with(cookies[name][:-2] + "AA", console.owner.email),
        see_with("k1.!", console.owner.email),
    ):
        assert "Mine" not in text
        assert FORM_NOTICE not in text


def test_browser_keeps_neither_passwords_nor_long_forms_before_a_login(
    console: OwnerAtConsole,
) -> None:
    interrupt_form(console, "/account/password", password="an altogether other one")
    assert not any("interrupted" in each for each in console.visitor.client.cookies)
    log_in_again(console)
    path = "/console/developers/keys/new"
    interrupt_form(console, path, name="x" * MAX_FORM_BYTES)
    assert not any("interrupted" in each for each in console.visitor.client.cookies)
    log_in_again(console)
    # The longest form fits into a cookie with the longest path and name.
    interrupt_form(console, path, name="x" * (MAX_FORM_BYTES - 400))
    [cookie] = [v for k, v in console.visitor.client.cookies.items() if "interrupted" in k]
    assert len(cookie) < 3_900


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
