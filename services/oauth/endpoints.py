"""What a client may ask about tokens that it was given: RFC 7009 and RFC 7662."""

from typing import TYPE_CHECKING, Any

from authlib.oauth2.rfc6749 import InvalidRequestError
from authlib.oauth2.rfc7009 import RevocationEndpoint
from authlib.oauth2.rfc7662 import IntrospectionEndpoint

from models import TokenKind
from services.oauth import tokens
from services.oauth.adapters import AuthlibClient, AuthlibRequest, AuthlibToken

if TYPE_CHECKING:
    from services.oauth.server import OAuthServer


class Revocation(RevocationEndpoint):
    CLIENT_AUTH_METHODS = ("client_secret_basic", "client_secret_post", "none")
    server: "OAuthServer"

    def authenticate_token(
        self, request: AuthlibRequest, client: AuthlibClient
    ) -> AuthlibToken | None:
        return _find(self.server, request, client)

    def revoke_token(self, token: AuthlibToken, _request: AuthlibRequest) -> None:
        tokens.revoke(self.server.uow, token.found.token)


class Introspection(IntrospectionEndpoint):
    # Whoever asks must be known, or stolen tokens could be tried out here (RFC 7662, 2.1).
    CLIENT_AUTH_METHODS = ("client_secret_basic", "client_secret_post")
    server: "OAuthServer"

    def authenticate_token(
        self, request: AuthlibRequest, client: AuthlibClient
    ) -> AuthlibToken | None:
        return _find(self.server, request, client)

    def introspect_token(self, token: AuthlibToken) -> dict[str, Any]:
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


def _find(
    server: "OAuthServer", request: AuthlibRequest, client: AuthlibClient
) -> AuthlibToken | None:
    """A token of this client. Its kind shows, so a hint, right or wrong, makes no difference."""
    secret = request.form.get("token")
    if secret is None:
        raise InvalidRequestError("The token is missing.")
    found = tokens.find(server.uow, server.keyring, secret, client_id=client.client_id)
    return None if found is None else AuthlibToken(found)
