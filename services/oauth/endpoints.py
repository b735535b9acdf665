"""The paths of the authorization server, its metadata, and its endpoints for issued tokens:
revocation (RFC 7009) and introspection (RFC 7662).
"""

from typing import Any

from authlib.oauth2.rfc6749 import InvalidRequestError
from authlib.oauth2.rfc7009 import RevocationEndpoint
from authlib.oauth2.rfc7662 import IntrospectionEndpoint

from core.scopes import EXPLANATIONS
from models import TokenKind
from services.oauth import adapters, tokens

AUTHORIZE_PATH = "/oauth/authorize"
TOKEN_PATH = "/oauth/token"  # noqa: S105 - a path
REVOKE_PATH = "/oauth/revoke"
INTROSPECT_PATH = "/oauth/introspect"
USERINFO_PATH = "/oauth/userinfo"
# On this page people see and revoke their grants.
METADATA_PATH = "/.well-known/oauth-authorization-server"


def _authenticate_token(
    endpoint: "Revocation | Introspection",
    request: adapters.AuthlibRequest,
    client: adapters.AuthlibClient,
) -> adapters.AuthlibToken | None:
    """The client's token. Its prefix tells its kind, so a ``token_type_hint`` is not needed."""
    secret = request.form.get("token")
    if secret is None:
        raise InvalidRequestError("The token is missing.")
    server = endpoint.server
    found = tokens.find(server.uow, server.keyring, secret, client_id=client.client_id)
    return None if found is None else adapters.AuthlibToken(found)


class Revocation(RevocationEndpoint):
    CLIENT_AUTH_METHODS = adapters.CLIENT_METHODS
    authenticate_token = _authenticate_token
    server: adapters.AuthlibServer

    def revoke_token(self, token: adapters.AuthlibToken, _request: adapters.AuthlibRequest) -> None:
        tokens.revoke(self.server.uow, token.found.token)


class Introspection(IntrospectionEndpoint):
    # The client must authenticate, or stolen tokens could be tried out here (RFC 7662, 2.1).
    CLIENT_AUTH_METHODS = ("client_secret_basic", "client_secret_post")
    authenticate_token = _authenticate_token
    server: adapters.AuthlibServer

    def introspect_token(self, token: adapters.AuthlibToken) -> dict[str, Any]:
        record = token.found.token
        described = {
            "active": True,
            "client_id": token.found.client_id,
            "scope": token.get_scope(),
            "sub": str(token.found.user_id),
            "iss": self.server.issuer,
            "iat": int(record.created_at.timestamp()),
            "exp": int(record.expires_at.timestamp()),
        }
        return described | ({"token_type": "Bearer"} if record.kind == TokenKind.ACCESS else {})


def metadata(public_base: str) -> dict[str, Any]:
    """What clients may know of the server beforehand (RFC 8414)."""
    return {
        "issuer": public_base,
        "authorization_endpoint": public_base + AUTHORIZE_PATH,
        "token_endpoint": public_base + TOKEN_PATH,
        "revocation_endpoint": public_base + REVOKE_PATH,
        "introspection_endpoint": public_base + INTROSPECT_PATH,
        "userinfo_endpoint": public_base + USERINFO_PATH,
        "scopes_supported": [str(scope) for scope in EXPLANATIONS],
        "response_types_supported": ["code"],
        "response_modes_supported": ["query"],
        "grant_types_supported": list(adapters.GRANT_TYPES),
        "token_endpoint_auth_methods_supported": list(adapters.CLIENT_METHODS),
        "revocation_endpoint_auth_methods_supported": list(Revocation.CLIENT_AUTH_METHODS),
        "introspection_endpoint_auth_methods_supported": list(Introspection.CLIENT_AUTH_METHODS),
        "code_challenge_methods_supported": ["S256"],
        "authorization_response_iss_parameter_supported": True,
    }
