"""Connects Authlib's OAuth authorization server to Pressroom's database.

Each HTTP request creates its own ``OAuthServer``. ``OAuthServer`` returns OAuth errors as responses
and doesn't raise them. Even after an OAuth error, the transaction must be committed, because it may
have revoked stolen tokens.
"""

import base64
import hmac
import re
from collections.abc import Callable, Collection, Iterable
from datetime import timedelta
from typing import Any
from urllib.parse import unquote_plus

from authlib.common.urls import add_params_to_uri
from authlib.oauth2.rfc6749 import (
    AuthorizationServer,
    InvalidClientError,
    InvalidRequestError,
    OAuth2Error,
)
from authlib.oauth2.rfc6749.grants import AuthorizationCodeGrant, RefreshTokenGrant
from authlib.oauth2.rfc7636 import CodeChallenge, create_s256_code_challenge
from sqlalchemy import func, select

from core.errors import DomainError, Kind
from core.ids import PersonId
from core.scopes import GRANTABLE_SCOPES, Scope
from core.secret_form import ACCESS_TOKEN, AUTHORIZATION_CODE, REFRESH_TOKEN
from models import OAuthCode, OAuthGrant, TokenKind
from services.access.caller import Caller
from services.access.sessions import lock_caller
from services.oauth import clients, grants
from services.oauth.adapters import (
    CLIENT_METHODS,
    GRANT_TYPES,
    AuthlibClient,
    AuthlibCode,
    AuthlibRefreshToken,
    AuthlibRequest,
    Introspection,
    OAuthRequest,
    OAuthResponse,
    Revocation,
)
from storage.unit_of_work import UnitOfWork

CODE_LIFETIME = timedelta(seconds=60)
_PURPOSE = "oauth-code"
_S256_CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}\Z")


def redeem_code(uow: UnitOfWork, secret: str, *, client_id: str) -> OAuthCode | None:
    """Mark a client's authorization code as used, or return ``None`` for an invalid code.

    If an authorization code is used twice, it counts as stolen, and all its tokens are revoked.
    """
    if not AUTHORIZATION_CODE.matches(secret):
        return None
    digests = uow.settings.keyring.signer(_PURPOSE).digests(secret.encode())
    query = select(OAuthCode).join(OAuthGrant, OAuthGrant.id == OAuthCode.grant_id)
    query = query.where(OAuthGrant.client_id == client_id, OAuthCode.secret_hmac.in_(digests))
    code = uow.session.scalar(query)
    if code is None or grants.lock_grant(uow, code.grant_id) is None:
        return None
    uow.session.refresh(code)
    if code.used_at is not None:
        grants.revoke_family(uow, code.id)
        return None
    # Check the code's expiry with the database's clock, which was also used to set the expiry time.
    code.used_at = uow.session.scalar(select(func.clock_timestamp()))
    uow.session.flush()
    return code if code.used_at is not None and code.used_at < code.expires_at else None


def build_client_error() -> InvalidClientError:
    """Return the error for a failed authentication of a client.

    The error is the same for every failure, so that strangers can't find out which clients exist.
    """
    return InvalidClientError("The client or its credentials are invalid.", status_code=401)


def read_credentials(request: AuthlibRequest) -> tuple[str, str | None, str]:
    """Return a request's OAuth client id, client secret and authentication method.

    Raises ``OAuth2Error`` if the request has no credentials, or has them both in the header
    ``Authorization`` and in the form.
    """
    client_id = request.form.get("client_id")
    secret = request.form.get("client_secret")
    header = request.headers.get("Authorization")
    if header is None:
        if client_id is None:
            raise build_client_error()
        return client_id, secret, "client_secret_post" if secret else "none"
    # The id and the secret in the header ``Authorization`` are URL-encoded (RFC 6749, 2.3.1).
    scheme, _, encoded = header.partition(" ")
    try:
        decoded = base64.b64decode(encoded.strip(), validate=True).decode()
    except ValueError:
        raise build_client_error() from None
    sent_id, colon, sent_secret = decoded.partition(":")
    if scheme.lower() != "basic" or not colon or "\0" in decoded:
        raise build_client_error()
    basic_id = unquote_plus(sent_id)
    basic_secret = unquote_plus(sent_secret) or None
    if secret is not None or client_id not in {None, basic_id}:
        raise InvalidRequestError("A client must use only one authentication method.")
    return basic_id, basic_secret, "client_secret_basic" if basic_secret else "none"


class ProofKey(CodeChallenge):
    """Requires PKCE (RFC 7636) with the method S256 for every authorization code.

    Without this class, Authlib would exempt confidential clients from PKCE, and would accept the
    insecure method "plain".
    """

    SUPPORTED_CODE_CHALLENGE_METHOD = ("S256",)
    CODE_CHALLENGE_METHODS = {  # noqa: RUF012 - Authlib expects a dict
        "S256": lambda verifier, challenge: hmac.compare_digest(
            create_s256_code_challenge(verifier), challenge
        )
    }

    def validate_code_challenge(self, grant: Any, _redirect_uri: str) -> None:
        parameters = grant.request.payload.data
        if parameters.get("code_challenge_method") != "S256":
            raise InvalidRequestError("The code_challenge_method must be S256.")
        if not _S256_CHALLENGE.match(parameters.get("code_challenge", "")):
            raise InvalidRequestError("The code_challenge must be the SHA-256 of the verifier.")


class _CodeGrant(AuthorizationCodeGrant):
    TOKEN_ENDPOINT_AUTH_METHODS = CLIENT_METHODS
    server: "OAuthServer"

    @staticmethod
    def validate_authorization_redirect_uri(request: AuthlibRequest, client: AuthlibClient) -> str:
        uri: str | None = request.payload.redirect_uri
        if uri is None or not client.check_redirect_uri(uri):
            raise InvalidRequestError("The redirect_uri is not registered for this client.")
        return uri

    def generate_authorization_code(self) -> str:
        return AUTHORIZATION_CODE.generate()

    def save_authorization_code(self, code: str, request: AuthlibRequest) -> None:
        uow = self.server.uow
        # ``AuthorizationRequest.decide`` has set ``request.user`` to the caller and the granted
        # scopes.
        caller, scopes = request.user
        grant = grants.grant_scopes(
            uow,
            account_id=caller.account_id,
            person_id=caller.person_id,
            client=request.client.record,
            scopes=scopes,
        )
        uow.session.add(
            OAuthCode(
                grant_id=grant.id,
                secret_hmac=self.server.keyring.signer(_PURPOSE).digest(code.encode()),
                redirect_uri=request.payload.redirect_uri,
                scopes=sorted(scopes),
                challenge=request.payload.data["code_challenge"],
                expires_at=func.now() + CODE_LIFETIME,
            )
        )

    def query_authorization_code(self, code: str, client: AuthlibClient) -> AuthlibCode | None:
        server = self.server
        row = redeem_code(server.uow, code, client_id=client.client_id)
        return None if row is None else AuthlibCode(row)

    def delete_authorization_code(self, authorization_code: AuthlibCode) -> None:
        """Do nothing, because the authorization code has already been marked as used."""

    def authenticate_user(self, authorization_code: AuthlibCode) -> int | None:
        return self.server.find_user_id(authorization_code.origin.grant_id)


class _RefreshGrant(RefreshTokenGrant):
    TOKEN_ENDPOINT_AUTH_METHODS = CLIENT_METHODS
    INCLUDE_NEW_REFRESH_TOKEN = True
    server: "OAuthServer"

    def authenticate_refresh_token(self, refresh_token: str) -> AuthlibRefreshToken | None:
        server = self.server
        grant = grants.lock_refresh_token(
            server.uow, refresh_token, client_id=self.request.client.client_id
        )
        return None if grant is None else AuthlibRefreshToken(grant)

    def authenticate_user(self, refresh_token: AuthlibRefreshToken) -> int | None:
        return self.server.find_user_id(refresh_token.origin.grant_id)

    def revoke_old_credential(self, refresh_token: AuthlibRefreshToken) -> None:
        grants.mark_rotated(self.server.uow, refresh_token.record)


class OAuthServer(AuthorizationServer):
    def __init__(self, uow: UnitOfWork, public_base: str) -> None:
        super().__init__(scopes_supported=sorted(GRANTABLE_SCOPES))
        self.uow = uow
        self.keyring = uow.settings.keyring
        self.issuer = public_base
        self.register_grant(_CodeGrant, [ProofKey()])
        self.register_grant(_RefreshGrant)
        self.register_endpoint(Revocation)
        self.register_endpoint(Introspection)

    # The following methods are called by the API.

    def issue_tokens(self, received: OAuthRequest) -> OAuthResponse:
        return self._respond(self.create_token_response, received)

    def revoke_token(self, received: OAuthRequest) -> OAuthResponse:
        return self._respond(self.create_endpoint_response, "revocation", received)

    def introspect_token(self, received: OAuthRequest) -> OAuthResponse:
        return self._respond(self.create_endpoint_response, "introspection", received)

    def read_authorization_request(
        self, received: OAuthRequest
    ) -> "AuthorizationRequest | OAuthResponse":
        """Return a valid authorization request, or a redirect to the client with an error.

        Raises the error if a redirect to the client isn't safe.
        """
        try:
            return AuthorizationRequest(self, self.get_consent_grant(received))
        except OAuth2Error as error:
            if error.redirect_uri is None:
                code = f"oauth.{error.error}"
                reason = error.get_error_description()
                raise DomainError(Kind.MALFORMED, code, reason) from None
            return self._error(error)

    def _respond(self, handler: Callable[..., OAuthResponse], *arguments: object) -> OAuthResponse:
        try:
            return handler(*arguments)
        except OAuth2Error as error:
            return self._error(error)

    def _error(self, error: OAuth2Error) -> OAuthResponse:
        return self.handle_response(*error())

    # The following methods are called by Authlib.

    def create_oauth2_request(self, request: OAuthRequest | AuthlibRequest) -> AuthlibRequest:
        if isinstance(request, AuthlibRequest):
            return request
        return AuthlibRequest(request, self.issuer)

    def handle_response(
        self, status: int, body: dict[str, Any], headers: Iterable[tuple[str, str]]
    ) -> OAuthResponse:
        headers_by_name = dict(headers)
        if "Location" in headers_by_name:
            # The parameter "iss" names the responding server, for clients that use several OAuth
            # servers (RFC 9207).
            headers_by_name["Location"] = add_params_to_uri(
                headers_by_name["Location"], [("iss", self.issuer)]
            )
        return OAuthResponse(status, body or {}, headers_by_name)

    def send_signal(self, name: str, *args: object, **kwargs: object) -> None:
        """Ignore Authlib's signals."""

    def query_client(self, client_id: str) -> AuthlibClient | None:
        client = clients.find_client(self.uow, client_id)
        return None if client is None else AuthlibClient(client)

    def authenticate_client(
        self, request: AuthlibRequest, methods: Collection[str], endpoint: str = "token"
    ) -> AuthlibClient:
        client_id, secret, method = read_credentials(request)
        client = self.query_client(client_id)
        record = client.record if client else None
        is_right_secret = clients.is_valid_secret(self.keyring, record, secret or "")
        if client is None or method not in methods:
            raise build_client_error()
        if not (is_right_secret if secret else client.is_public):
            raise build_client_error()
        request.auth_method = method
        return client

    def get_authorization_grant(self, request: AuthlibRequest) -> Any:
        if request.payload.response_type == "code":
            return super().get_authorization_grant(request)
        client = self.query_client(request.payload.client_id or "")
        if client is None:
            raise build_client_error()
        uri = _CodeGrant.validate_authorization_redirect_uri(request, client)
        error = "unsupported_response_type" if request.payload.response_type else "invalid_request"
        raise OAuth2Error("The response_type must be code.", error=error, redirect_uri=uri)

    def get_token_grant(self, request: AuthlibRequest) -> Any:
        if request.payload.grant_type is None:
            raise InvalidRequestError("The grant_type is missing.")
        if request.payload.grant_type not in GRANT_TYPES:
            raise OAuth2Error(
                f"The grant_type must be one of {', '.join(GRANT_TYPES)}.",
                error="unsupported_grant_type",
            )
        return super().get_token_grant(request)

    def generate_token(self, *, scope: str, **_: object) -> dict[str, Any]:
        return {
            "token_type": "Bearer",
            "access_token": ACCESS_TOKEN.generate(),
            "expires_in": int(grants.OAUTH_TOKEN_LIFETIMES[TokenKind.ACCESS].total_seconds()),
            "refresh_token": REFRESH_TOKEN.generate(),
            "scope": " ".join(sorted(set(scope.split()))),
        }

    def save_token(self, token: dict[str, Any], request: AuthlibRequest) -> None:
        origin = (request.authorization_code or request.refresh_token).origin
        grants.store_tokens(self.uow, origin, token)

    def find_user_id(self, grant_id: int) -> PersonId | None:
        grant = self.uow.session.get(OAuthGrant, grant_id)
        return None if grant is None else grant.user_id


class AuthorizationRequest:
    def __init__(self, server: OAuthServer, grant: Any) -> None:
        self._server = server
        self._grant = grant
        self.client_name: str = grant.client.record.name
        self.redirect_uri: str = grant.redirect_uri
        self.scopes = [Scope(scope) for scope in grant.request.scope.split()]

    def decide(self, caller: Caller, scopes: Collection[Scope]) -> OAuthResponse:
        """Grant the scopes that the person has chosen, or deny the request if there are none."""
        granted_scopes = [scope for scope in self.scopes if scope in scopes]
        if granted_scopes:
            lock_caller(self._server.uow, caller)
        response: OAuthResponse = self._server.create_authorization_response(
            self._grant.request,
            grant_user=(caller, granted_scopes) if granted_scopes else None,
            grant=self._grant,
        )
        return response
