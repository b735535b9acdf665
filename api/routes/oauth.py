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
    400: {
        "model": OAuthError,
        "description": "An OAuth error such as `invalid_request` or `invalid_grant`",
    },
    401: {"model": OAuthError, "description": "`invalid_client`"},
}
_CLIENT_FIELDS = {
    "client_id": "The id of the client. A public client sends no secret.",
    "client_secret": (
        "The secret of the client. The secret can also be sent with HTTP Basic authentication."
    ),
}
_EXCHANGE_FIELDS = {
    "grant_type": "`authorization_code` or `refresh_token`",
    "code": ("The code from the redirect. The code expires after one minute and works once."),
    "redirect_uri": "The redirect URI to which the code was sent",
    "code_verifier": "The verifier from which the `code_challenge` was derived (PKCE, S256)",
    "refresh_token": "The most recent refresh token. Each refresh token works once.",
    "scope": "Fewer scopes than the client was granted. Used only to refresh tokens.",
}
_FIELD_EXAMPLES = {
    "grant_type": "authorization_code",
    "code": "3fVq8nK2mXw0",
    "redirect_uri": "https://desk.example.com/callback",
    "code_verifier": "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk",
    "client_id": "5d1f0c8e7a",
    "token": "pra_…",
}
_TOKEN_FIELDS = {
    "token": "An access token or a refresh token",
    "token_type_hint": "An optional hint, which is ignored",
}


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
    summary="Issue tokens",
    response_model=TokenAnswer,
    responses=_ERROR_RESPONSES,
    dependencies=[PUBLIC],
    openapi_extra=_describe_form("grant_type", _EXCHANGE_FIELDS),
)
def issue_tokens(uow: Transaction, oauth_request: OAuthRequestOf) -> Response:
    """Exchange a code or the most recent refresh token for an access token and a refresh token.

    If a code or refresh token is used twice, all tokens from its first use are revoked.
    """
    return build_oauth_response(_build_server(uow).issue_tokens(oauth_request))


@router.post(
    adapters.REVOKE_PATH,
    summary="Revoke a token",
    responses={
        200: {"description": "The token is revoked, or was already invalid.", "model": dict},
        **_ERROR_RESPONSES,
    },
    dependencies=[PUBLIC],
    openapi_extra=_describe_form("token", _TOKEN_FIELDS),
)
def revoke_token(uow: Transaction, oauth_request: OAuthRequestOf) -> Response:
    """Revoke a token (RFC 7009). Revoking a refresh token also revokes all tokens of the same
    login.
    """
    return build_oauth_response(_build_server(uow).revoke_token(oauth_request))


@router.post(
    adapters.INTROSPECT_PATH,
    summary="Introspect a token",
    response_model=IntrospectionAnswer,
    responses=_ERROR_RESPONSES,
    dependencies=[PUBLIC],
    openapi_extra=_describe_form("token", _TOKEN_FIELDS),
)
def introspect_token(uow: Transaction, oauth_request: OAuthRequestOf) -> Response:
    """Check whether a token is valid, and return its scopes and other details (RFC 7662). Only the
    client that owns the token can make this request. The client must send its secret.
    """
    return build_oauth_response(_build_server(uow).introspect_token(oauth_request))


@router.get(
    adapters.USERINFO_PATH, summary="Retrieve the token's user", response_model_exclude_none=True
)
def read_userinfo(uow: Transaction, caller: AnyCaller) -> UserInfo:
    """Retrieve the user who authorized the token."""
    user = accounts.get_user(uow, caller.person_id)
    return UserInfo(sub=str(user.id), email=user.email, name=user.name)


@router.get(adapters.METADATA_PATH, summary="Retrieve the OAuth metadata", dependencies=[PUBLIC])
async def read_oauth_metadata(state: StateOf) -> Metadata:
    """Retrieve the endpoints and capabilities of the authorization server (RFC 8414)."""
    return Metadata(**adapters.build_metadata(state.resources.settings.public_base))


def _build_server(uow: UnitOfWork) -> OAuthServer:
    return OAuthServer(uow, uow.settings.public_base)
