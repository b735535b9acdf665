"""The page on which a user grants an app access to the account (OAuth consent).

API keys and tokens are rejected, because an app could use them to grant itself more rights.
"""

from urllib.parse import urlsplit

from fastapi import APIRouter, Request, Response

from api.auth.form_pages import render_form_page
from api.auth.page_sessions import require_member, require_recent_session
from api.auth.requirements import OptionalSession, OptionalSessionForm
from api.bodies.oauth_messages import read_oauth_query
from api.bodies.page_forms import FormOf
from api.html.frame import redirect_to
from api.route_classes import ThreadedRoute
from api.state import State, StateOf, Transaction
from core.errors.requests import BODY_INVALID
from core.scopes import SCOPE_EXPLANATIONS, Scope
from services.accounts import accounts
from services.oauth.adapters import AUTHORIZE_PATH, OAuthResponse
from services.oauth.server import AuthorizationRequest, OAuthServer
from storage.unit_of_work import UnitOfWork

router = APIRouter(include_in_schema=False, route_class=ThreadedRoute)


@router.get(AUTHORIZE_PATH)
def show_consent(
    request: Request, state: StateOf, uow: Transaction, session: OptionalSession
) -> Response:
    authorization = _read_authorization(request, state, uow)
    if isinstance(authorization, OAuthResponse):
        return _redirect_to_client(authorization)
    member = require_member(session)
    require_recent_session(uow, member)
    target = urlsplit(authorization.redirect_uri)
    return render_form_page(
        state,
        member.cookie,
        "consent.html",
        # Allow the form to redirect to every host, because the app's site may redirect to another
        # host. Browsers check each redirect after a submitted form against the
        # Content-Security-Policy.
        form_targets=f"{target.scheme}:",
        client_name=authorization.client_name,
        address=accounts.get_user(uow, member.person_id).email,
        scopes=authorization.scopes,
        explanations=SCOPE_EXPLANATIONS,
        destination=target.netloc or f"an app on this device ({target.scheme})",
    )


@router.post(AUTHORIZE_PATH)
def decide_consent(
    request: Request, state: StateOf, uow: Transaction, session: OptionalSessionForm, form: FormOf
) -> Response:
    """The app's request is validated again, because the user can change the URL."""
    member = require_member(session)
    authorization = _read_authorization(request, state, uow)
    if isinstance(authorization, OAuthResponse):
        return _redirect_to_client(authorization)
    require_recent_session(uow, member)
    decision = form.get("decision")
    if decision not in {"allow", "deny"}:
        raise BODY_INVALID(place="body.decision", rule="must be allow or deny")
    scopes = [scope for scope in Scope if decision == "allow" and f"scope.{scope}" in form]
    return _redirect_to_client(authorization.decide(member.caller, scopes))


def _read_authorization(
    request: Request, state: State, uow: UnitOfWork
) -> AuthorizationRequest | OAuthResponse:
    server = OAuthServer(uow, state.resources.settings.public_base)
    return server.read_authorization_request(read_oauth_query(request))


def _redirect_to_client(reply: OAuthResponse) -> Response:
    # Use status 303, because browsers repeat the POST after a 307 or 308.
    assert reply.location
    return redirect_to(reply.location)
