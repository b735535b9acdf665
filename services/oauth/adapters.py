"""Implements Authlib's interfaces for requests, clients, codes and tokens with Pressroom's data."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from authlib.oauth2 import rfc6749
from authlib.oauth2.rfc6749 import InvalidRequestError
from authlib.oauth2.rfc6749.requests import BasicOAuth2Payload
from authlib.oauth2.rfc7009 import RevocationEndpoint
from authlib.oauth2.rfc7662 import IntrospectionEndpoint

from core.keyring import Keyring
from core.scopes import SCOPE_EXPLANATIONS
from models import OAuthClient, OAuthCode, OAuthToken, TokenKind
from services.oauth import clients, grants
from services.oauth.grants import IssuedToken, TokenOrigin
from storage.unit_of_work import UnitOfWork

GRANT_TYPES = ("authorization_code", "refresh_token")
CLIENT_METHODS = ("client_secret_basic", "client_secret_post", "none")
AUTHORIZE_PATH = "/oauth/authorize"
TOKEN_PATH = "/oauth/token"  # noqa: S105 - a path
REVOKE_PATH = "/oauth/revoke"
INTROSPECT_PATH = "/oauth/introspect"
USERINFO_PATH = "/oauth/userinfo"
METADATA_PATH = "/.well-known/oauth-authorization-server"


class AuthlibServer(Protocol):
    uow: UnitOfWork
    keyring: Keyring
    issuer: str


@dataclass(frozen=True)
class OAuthRequest:
    method: str
    path: str
    parameters: list[tuple[str, str]]
    authorization: str | None = None


@dataclass(frozen=True)
class OAuthResponse:
    status: int
    body: dict[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def location(self) -> str | None:
        return self.headers.get("Location")


class AuthlibRequest(rfc6749.OAuth2Request):
    """Wraps an ``OAuthRequest`` for Authlib.

    The request's URL begins with the deployment's public URL, because a proxy may have changed the
    host name. An empty request parameter counts as missing. A repeated request parameter raises
    ``InvalidRequestError`` (RFC 6749, 3.1 and 3.2).
    """

    def __init__(self, received: OAuthRequest, public_base: str) -> None:
        headers = {"Authorization": received.authorization} if received.authorization else {}
        super().__init__(received.method, public_base + received.path, headers=headers)
        parameters = [(name, value) for name, value in received.parameters if value]
        if len({name for name, _ in parameters}) != len(parameters):
            raise rfc6749.InvalidRequestError("A parameter occurs more than once.")
        if any("\0" in value for _, value in parameters):
            raise rfc6749.InvalidRequestError("A parameter contains a NUL character.")
        self._parameters = dict(parameters)
        self.payload = BasicOAuth2Payload(self._parameters)

    @property
    def form(self) -> dict[str, str]:
        return self._parameters


class AuthlibClient(rfc6749.ClientMixin):
    def __init__(self, record: OAuthClient) -> None:
        self.record = record
        self.client_id = record.client_id
        self.is_public = record.secret_hmac is None

    def check_redirect_uri(self, redirect_uri: str) -> bool:
        return clients.is_registered_uri(redirect_uri, self.record.redirect_uris)

    def get_allowed_scope(self, scope: str | None) -> str | None:
        """Return the requested scopes, by default all, or ``None`` if one is forbidden."""
        requested = set((scope or "").split()) or set(self.record.scopes)
        return " ".join(sorted(requested)) if requested <= set(self.record.scopes) else None

    def check_response_type(self, response_type: str) -> bool:
        return response_type == "code"

    def check_grant_type(self, grant_type: str) -> bool:
        return grant_type in GRANT_TYPES


class AuthlibCode(rfc6749.AuthorizationCodeMixin):
    code_challenge_method = "S256"

    def __init__(self, record: OAuthCode) -> None:
        self._record = record
        self.code_challenge = record.challenge
        self.origin = TokenOrigin(record.grant_id, record.id, record.scopes)

    def get_redirect_uri(self) -> str:
        return self._record.redirect_uri

    def get_scope(self) -> str:
        return " ".join(self._record.scopes)


class AuthlibRefreshToken(rfc6749.TokenMixin):
    """A refresh token whose grant is locked by the current transaction."""

    def __init__(self, record: OAuthToken) -> None:
        self.record = record
        self.origin = TokenOrigin(record.grant_id, record.family, record.scopes)

    def check_client(self, _client: AuthlibClient) -> bool:
        # ``lock_refresh_token`` finds only the client's own tokens.
        return True

    def get_scope(self) -> str:
        return " ".join(self.record.scopes)


class AuthlibToken(rfc6749.TokenMixin):
    def __init__(self, issued: IssuedToken) -> None:
        self.issued = issued

    def get_scope(self) -> str:
        return " ".join(self.issued.token.scopes)

    def is_expired(self) -> bool:
        return not self.issued.is_active

    is_revoked = is_expired


def _authenticate_token(
    endpoint: "Revocation | Introspection", request: AuthlibRequest, client: AuthlibClient
) -> AuthlibToken | None:
    """Return the token in a request, or ``None`` if the token wasn't issued to the client.

    ``token_type_hint`` is ignored, because the prefix of a token shows its type.
    """
    secret = request.form.get("token")
    if secret is None:
        raise InvalidRequestError("The token is missing.")
    issued = grants.find_token(endpoint.server.uow, secret, client_id=client.client_id)
    return None if issued is None else AuthlibToken(issued)


class Revocation(RevocationEndpoint):
    CLIENT_AUTH_METHODS = CLIENT_METHODS
    authenticate_token = _authenticate_token
    server: AuthlibServer

    def revoke_token(self, token: AuthlibToken, _request: AuthlibRequest) -> None:
        grants.revoke_token(self.server.uow, token.issued.token)


class Introspection(IntrospectionEndpoint):
    # Only authenticated clients can introspect tokens, because an attacker could otherwise test
    # stolen tokens (RFC 7662, 2.1).
    CLIENT_AUTH_METHODS = ("client_secret_basic", "client_secret_post")
    authenticate_token = _authenticate_token
    server: AuthlibServer

    def introspect_token(self, token: AuthlibToken) -> dict[str, Any]:
        record = token.issued.token
        description = {
            "active": True,
            "client_id": token.issued.client_id,
            "scope": token.get_scope(),
            "sub": str(token.issued.person_id),
            "iss": self.server.issuer,
            "iat": int(record.created_at.timestamp()),
            "exp": int(record.expires_at.timestamp()),
        }
        if record.kind == TokenKind.ACCESS:
            description["token_type"] = "Bearer"  # noqa: S105 - a type
        return description


def build_metadata(public_base: str) -> dict[str, Any]:
    """Return the authorization server metadata for OAuth clients (RFC 8414)."""
    return {
        "issuer": public_base,
        "authorization_endpoint": public_base + AUTHORIZE_PATH,
        "token_endpoint": public_base + TOKEN_PATH,
        "revocation_endpoint": public_base + REVOKE_PATH,
        "introspection_endpoint": public_base + INTROSPECT_PATH,
        "userinfo_endpoint": public_base + USERINFO_PATH,
        "scopes_supported": [str(scope) for scope in SCOPE_EXPLANATIONS],
        "response_types_supported": ["code"],
        "response_modes_supported": ["query"],
        "grant_types_supported": list(GRANT_TYPES),
        "token_endpoint_auth_methods_supported": list(CLIENT_METHODS),
        "revocation_endpoint_auth_methods_supported": list(Revocation.CLIENT_AUTH_METHODS),
        "introspection_endpoint_auth_methods_supported": list(Introspection.CLIENT_AUTH_METHODS),
        "code_challenge_methods_supported": ["S256"],
        "authorization_response_iss_parameter_supported": True,
    }
