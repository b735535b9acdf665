"""Adapters between Authlib and Pressroom: requests, clients, codes and tokens."""

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
from services.oauth.grants import FoundToken, TokenOrigin
from storage.unit_of_work import UnitOfWork

GRANT_TYPES = ("authorization_code", "refresh_token")
CLIENT_METHODS = ("client_secret_basic", "client_secret_post", "none")


class AuthlibServer(Protocol):
    """The server of one request, as Authlib's grants and endpoints use it."""

    uow: UnitOfWork
    keyring: Keyring
    issuer: str


@dataclass(frozen=True)
class OAuthRequest:
    """A request to the authorization server: parameters of its query or its form."""

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
    """Authlib's request. Its URL is built from the public base, whatever host a proxy passes on.

    A parameter without a value counts as absent; a repeated one raises ``InvalidRequestError``
    (RFC 6749, 3.1 and 3.2).
    """

    def __init__(self, received: OAuthRequest, public_base: str) -> None:
        headers = {"Authorization": received.authorization} if received.authorization else {}
        super().__init__(received.method, public_base + received.path, headers=headers)
        sent = [(name, value) for name, value in received.parameters if value]
        if len({name for name, _ in sent}) != len(sent):
            raise rfc6749.InvalidRequestError("A parameter is repeated.")
        if any("\0" in value for _, value in sent):
            raise rfc6749.InvalidRequestError("A parameter holds a NUL character.")
        self._parameters = dict(sent)
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
        return clients.is_registered(redirect_uri, self.record.redirect_uris)

    def get_allowed_scope(self, scope: str | None) -> str | None:
        """All the scopes that were asked for, or ``None``; without any, all of the client's."""
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
    """A refresh token whose grant is locked; it was looked up among its client's tokens."""

    def __init__(self, record: OAuthToken) -> None:
        self.record = record
        self.origin = TokenOrigin(record.grant_id, record.family, record.scopes)

    def check_client(self, _client: AuthlibClient) -> bool:
        return True

    def get_scope(self) -> str:
        return " ".join(self.record.scopes)


class AuthlibToken(rfc6749.TokenMixin):
    """A token that its client revokes or asks about."""

    def __init__(self, found: FoundToken) -> None:
        self.found = found

    def get_scope(self) -> str:
        return " ".join(self.found.token.scopes)

    def is_expired(self) -> bool:
        return not self.found.is_active

    is_revoked = is_expired


AUTHORIZE_PATH = "/oauth/authorize"
TOKEN_PATH = "/oauth/token"  # noqa: S105 - a path
REVOKE_PATH = "/oauth/revoke"
INTROSPECT_PATH = "/oauth/introspect"
USERINFO_PATH = "/oauth/userinfo"
METADATA_PATH = "/.well-known/oauth-authorization-server"


def _authenticate_token(
    endpoint: "Revocation | Introspection", request: AuthlibRequest, client: AuthlibClient
) -> AuthlibToken | None:
    """The client's token. Its prefix tells its kind, so a ``token_type_hint`` is not needed."""
    secret = request.form.get("token")
    if secret is None:
        raise InvalidRequestError("The token is missing.")
    server = endpoint.server
    grant = grants.find(server.uow, secret, client_id=client.client_id)
    return None if grant is None else AuthlibToken(grant)


class Revocation(RevocationEndpoint):
    CLIENT_AUTH_METHODS = CLIENT_METHODS
    authenticate_token = _authenticate_token
    server: AuthlibServer

    def revoke_token(self, token: AuthlibToken, _request: AuthlibRequest) -> None:
        grants.revoke_token(self.server.uow, token.found.token)


class Introspection(IntrospectionEndpoint):
    # The client must authenticate, or stolen tokens could be tried out here (RFC 7662, 2.1).
    CLIENT_AUTH_METHODS = ("client_secret_basic", "client_secret_post")
    authenticate_token = _authenticate_token
    server: AuthlibServer

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


def metadata(public_base: str) -> dict[str, Any]:
    """Return what clients may know of the server beforehand (RFC 8414)."""
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
