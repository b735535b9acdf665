"""The API endpoints of the OAuth authorization server.

The responses have the format that the OAuth RFCs define, without Pressroom's envelope.
"""

from typing import Any

from fastapi import APIRouter, Response

from api.auth.requirements import PUBLIC, AnyCaller
from api.bodies.oauth_messages import OAuthRequestOf, build_oauth_response
from api.bodies.url_encoded_forms import FORM
from api.route_classes import ThreadedRoute
from api.schemas.oauth import IntrospectionAnswer, Metadata, OAuthError, TokenAnswer, UserInfo
from api.state import StateOf, Transaction
from services.accounts import accounts
from services.oauth import adapters
from services.oauth.server import OAuthServer
from storage.unit_of_work import UnitOfWork

router = APIRouter(tags=["OAuth"], route_class=ThreadedRoute)

_ERROR_RESPONSES: dict[int | str, dict[str, Any]] = {
    400: {"model": OAuthError, "description": "`invalid_request`, `invalid_grant` and the like"},
    401: {"model": OAuthError, "description": "`invalid_client`"},
}
_CLIENT_FIELDS = {
    "client_id": "A public client says only this",
    "client_secret": "Or by HTTP Basic",
}
_EXCHANGE_FIELDS = {
    "grant_type": "authorization_code or refresh_token",
    "code": "From the redirect; counts once, within a minute",
    "redirect_uri": "The one that the code was sent to",
    "code_verifier": "What the code_challenge was made of (PKCE, S256)",
    "refresh_token": "The last one; each counts once",
    "scope": "On a refresh: less than was given",
}
_FIELD_EXAMPLES = {
    "grant_type": "authorization_code",
    "code": "3fVq8nK2mXw0",
    "redirect_uri": "https://desk.example.com/callback",
    "code_verifier": "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk",
    "client_id": "5d1f0c8e7a",
    "token": "pra_…",
}
_TOKEN_FIELDS = {"token": "Of either kind", "token_type_hint": "Not needed"}


def _describe_form(required: str, fields: dict[str, str]) -> dict[str, Any]:
    """Return the ``openapi_extra`` of a route whose form is read by the OAuth service."""
    properties = {
        name: {"type": "string", "description": description}
        | ({"examples": [_FIELD_EXAMPLES[name]]} if name in _FIELD_EXAMPLES else {})
        for name, description in {**fields, **_CLIENT_FIELDS}.items()
    }
    schema = {"type": "object", "required": [required], "properties": properties}
    return {"requestBody": {"required": True, "content": {FORM: {"schema": schema}}}}


@router.post(
    adapters.TOKEN_PATH,
    response_model=TokenAnswer,
    responses=_ERROR_RESPONSES,
    dependencies=[PUBLIC],
    openapi_extra=_describe_form("grant_type", _EXCHANGE_FIELDS),
)
def issue_tokens(uow: Transaction, oauth_request: OAuthRequestOf) -> Response:
    """Exchange a code, or the last refresh token, for a new pair of tokens.

    A code or refresh token that is used twice ends all tokens that its first use gave.
    """
    return build_oauth_response(_build_server(uow).issue_tokens(oauth_request))


@router.post(
    adapters.REVOKE_PATH,
    responses={
        200: {"description": "It counts no more, if it did", "model": dict},
        **_ERROR_RESPONSES,
    },
    dependencies=[PUBLIC],
    openapi_extra=_describe_form("token", _TOKEN_FIELDS),
)
def revoke_token(uow: Transaction, oauth_request: OAuthRequestOf) -> Response:
    """End a token (RFC 7009). A refresh token ends with every token of the same login."""
    return build_oauth_response(_build_server(uow).revoke_token(oauth_request))


@router.post(
    adapters.INTROSPECT_PATH,
    response_model=IntrospectionAnswer,
    responses=_ERROR_RESPONSES,
    dependencies=[PUBLIC],
    openapi_extra=_describe_form("token", _TOKEN_FIELDS),
)
def introspect_token(uow: Transaction, oauth_request: OAuthRequestOf) -> Response:
    """Tell whether a token is still valid, and for what (RFC 7662). Only the client to which
    it was given may ask, and needs its secret."""
    return build_oauth_response(_build_server(uow).introspect_token(oauth_request))


@router.get(adapters.USERINFO_PATH, response_model_exclude_none=True)
def read_userinfo(uow: Transaction, caller: AnyCaller) -> UserInfo:
    """The user to whom the token belongs."""
    user = accounts.get_user(uow, caller.user_id)
    return UserInfo(sub=str(user.id), email=user.email, name=user.name)


@router.get(adapters.METADATA_PATH, dependencies=[PUBLIC])
async def read_oauth_metadata(state: StateOf) -> Metadata:
    """The authorization server's endpoints and abilities (RFC 8414)."""
    return Metadata(**adapters.build_metadata(state.resources.settings.public_base))


def _build_server(uow: UnitOfWork) -> OAuthServer:
    return OAuthServer(uow, uow.settings.public_base)
