"""The page on which people give programs access to their account.

Only the browser's session counts here: a token or a key must not agree to more than it may do.
"""

from urllib.parse import urlsplit

from fastapi import APIRouter, Request, Response

from api.auth.form_pages import render_form_page
from api.auth.page_sessions import (
    find_form_session,
    find_page_session,
    require_member,
    require_recent_session,
)
from api.auth.requirements import PUBLIC
from api.bodies.forms import oauth_request_of_query
from api.bodies.page_forms import FormOf
from api.html.frame import redirect
from api.route_classes import ThreadedRoute
from api.state import State, StateOf, Transaction
from core.errors.requests import BODY_INVALID
from core.scopes import EXPLANATIONS, Scope
from services.accounts import accounts
from services.oauth.adapters import AUTHORIZE_PATH, OAuthResponse
from services.oauth.server import AuthorizationRequest, OAuthServer
from storage.unit_of_work import UnitOfWork

router = APIRouter(dependencies=[PUBLIC], include_in_schema=False, route_class=ThreadedRoute)


@router.get(AUTHORIZE_PATH)
def show_consent(request: Request, state: StateOf, uow: Transaction) -> Response:
    """Ask the person for consent. The client and its redirect URI are checked before all else."""
    # Before the transaction begins: a thread has one connection at a time.
    logged_in = find_page_session(request, state)
    asked = _ask(request, state, uow)
    if isinstance(asked, OAuthResponse):
        return _sent_back(asked)
    member = require_member(logged_in)
    require_recent_session(uow, member)
    target = urlsplit(asked.redirect_uri)
    return render_form_page(
        state,
        member.cookie,
        "consent.html",
        # Browsers hold the redirects after a form to the same rule, and a client may redirect on.
        form_targets=f"{target.scheme}:",
        client_name=asked.client_name,
        address=accounts.get(uow, member.user_id).email,
        scopes=asked.scopes,
        explanations=EXPLANATIONS,
        destination=target.netloc or f"{target.scheme}, an app on this device",
    )


@router.post(AUTHORIZE_PATH)
def decide(request: Request, state: StateOf, uow: Transaction, form: FormOf) -> Response:
    """Allow or deny, as pressed on the page. The request in the URL is checked once more."""
    sent_by = find_form_session(request, state, form)
    member = require_member(sent_by)
    asked = _ask(request, state, uow)
    if isinstance(asked, OAuthResponse):
        return _sent_back(asked)
    require_recent_session(uow, member)
    decision = form.get("decision")
    if decision not in {"allow", "deny"}:
        raise BODY_INVALID(place="body.decision", rule="allow or deny")
    chosen = [each for each in Scope if f"scope.{each}" in form]
    return _sent_back(asked.answer(member.caller, chosen if decision == "allow" else []))


def _ask(request: Request, state: State, uow: UnitOfWork) -> AuthorizationRequest | OAuthResponse:
    server = OAuthServer(uow, state.resources.settings.public_base)
    return server.ask(oauth_request_of_query(request))


def _sent_back(reply: OAuthResponse) -> Response:
    # By 303, so that no browser posts this page's form to the client.
    assert reply.location
    return redirect(reply.location)
