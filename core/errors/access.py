"""Errors about credentials, keys, sessions and logins."""

from core.errors.catalogue import (
    forbidden,
    invalid,
    invalid_at,
    not_found,
    rate_limited,
    unauthenticated,
    unavailable,
)

AUTH_CREDENTIALS_MISSING = unauthenticated(
    "auth.credentials_missing", "Send an API key or access token as 'Authorization: Bearer …'."
)
AUTH_CREDENTIALS_OR_TRACE_MISSING = unauthenticated(
    "auth.credentials_missing", "Send a trace_id, or credentials of your own."
)
AUTH_CREDENTIALS_DISAGREE = unauthenticated(
    "auth.credentials_disagree", "The request carries credentials that differ."
)
AUTH_SCHEME_UNKNOWN = unauthenticated(
    "auth.scheme_unknown", "The Authorization header must read 'Bearer <token>'."
)
AUTH_INVALID_API_KEY = unauthenticated(
    "auth.invalid_credentials", "The API key is unknown, mistyped, expired or revoked."
)
AUTH_INVALID_SESSION = unauthenticated(
    "auth.invalid_credentials", "The session is over. Log in again."
)
AUTH_INVALID_ACCESS_TOKEN = unauthenticated(
    "auth.invalid_credentials", "The access token is unknown, mistyped, expired or revoked."
)
AUTH_METRICS_TOKEN = unauthenticated(
    "auth.metrics_token", "Send the metrics token as a bearer token."
)
AUTH_INSUFFICIENT_SCOPE = forbidden(
    "auth.insufficient_scope", "This needs the scope {scope}.", scope="attachment"
)
AUTH_RESTRICTED_CREDENTIAL = forbidden(
    "auth.restricted_credential", "This needs a session or an unrestricted API key."
)
AUTH_SCOPE_NOT_GRANTABLE = forbidden(
    "auth.scope_not_grantable", "Only the operator gives the scope delivery."
)
AUTH_LOGIN_AGAIN = forbidden(
    "auth.login_again", "This needs a login of the last 15 minutes. Log in again."
)
AUTH_SECOND_FACTOR = forbidden(
    "auth.second_factor", "This needs a second factor. Log in with one, or set one up."
)
AUTH_CSRF = forbidden(
    "auth.csrf",
    "With a session, a write needs our own Origin or the {header} header.",
    header="X-CSRF-Token",
)

QUOTA_EXCEEDED = forbidden(
    "quota.exceeded",
    "Your plan has no room for this: of {quota}, {used} of {limit} are used.",
    quota="lists",
    used=5,
    limit=5,
)

API_KEY_NAME = invalid("api_key.name", "A key's name has 1 to {most} characters.", most=200)
API_KEY_EXPIRY = invalid_at("expires_at", "api_key.expiry", "must lie in the future.")
API_KEY_NOT_FOUND = not_found("api_key.not_found", "There is no such API key.")
SESSION_NOT_FOUND = not_found("session.not_found", "There is no such session.")

LOGIN_PAUSED = rate_limited(
    "login.paused", "Too many logins failed. Wait, or ask for a new password by mail."
)
LOGIN_BUSY = unavailable("login.busy", "Too many people log in at once.", retry_after=5)

# This module doesn't declare the errors of the OAuth protocol (RFC 6749), because the OAuth library
# creates them.
OAUTH_CLIENT_NOT_FOUND = not_found("oauth_client.not_found", "There is no such client.")
OAUTH_CLIENT_NAME = invalid(
    "oauth_client.name", "A client's name has 1 to {most} printable characters.", most=100
)
OAUTH_CLIENT_REDIRECT_URI_MISSING = invalid(
    "oauth_client.redirect_uri", "A client needs a redirect URI."
)
OAUTH_CLIENT_REDIRECT_URI = invalid(
    "oauth_client.redirect_uri",
    "The redirect URI {uri} {reason}.",
    uri="https://example.com/#there",
    reason="has a fragment",
)
OAUTH_CLIENT_SCOPES_MISSING = invalid("oauth_client.scopes", "A client needs a scope.")
OAUTH_CLIENT_SCOPES = invalid(
    "oauth_client.scopes", "People can't give the scope {scopes}.", scopes="delivery"
)
GRANT_NOT_FOUND = not_found("grant.not_found", "There is no such grant.")
