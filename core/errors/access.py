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
    "auth.credentials_missing",
    "Send an API key or access token in the Authorization header: 'Bearer <token>'.",
)
AUTH_CREDENTIALS_OR_TRACE_MISSING = unauthenticated(
    "auth.credentials_missing", "Send a trace_id or your credentials."
)
AUTH_CREDENTIALS_DISAGREE = unauthenticated(
    "auth.credentials_disagree",
    "The request contains more than one credential. Send only one credential.",
)
AUTH_SCHEME_UNKNOWN = unauthenticated(
    "auth.scheme_unknown", "The Authorization header must have the form 'Bearer <token>'."
)
AUTH_INVALID_API_KEY = unauthenticated(
    "auth.invalid_credentials", "The API key is invalid, expired or revoked."
)
AUTH_INVALID_SESSION = unauthenticated(
    "auth.invalid_credentials", "The session has ended. Log in again."
)
AUTH_INVALID_ACCESS_TOKEN = unauthenticated(
    "auth.invalid_credentials", "The access token is invalid, expired or revoked."
)
AUTH_METRICS_TOKEN = unauthenticated(
    "auth.metrics_token", "Send the metrics token as a bearer token."
)
AUTH_INSUFFICIENT_SCOPE = forbidden(
    "auth.insufficient_scope", "This request requires the scope {scope}.", scope="attachment"
)
AUTH_DELIVERY_SCOPE_NEEDED = forbidden(
    "auth.insufficient_scope",
    "This request requires the scope delivery for this list. It lets a sending program export the "
    "list's roster. An owner can create an API key with this scope for their own lists, by POST "
    "/apikeys with list_ids. The operator can create one for any list, by the command pressroom "
    "keys create with --scope delivery.",
)
AUTH_DELIVERY_LISTS_MISSING = forbidden(
    "auth.insufficient_scope",
    "body.list_ids: Only the operator can create an API key with the scope delivery for every "
    "list. Name your lists in list_ids.",
)
AUTH_DELIVERY_FORBIDDEN = forbidden(
    "auth.delivery_forbidden",
    "The operator doesn't allow owners' API keys with the scope delivery. Ask the operator for a "
    "key.",
)
AUTH_RESTRICTED_CREDENTIAL = forbidden(
    "auth.restricted_credential",
    "This request requires a session or an API key with full access.",
)
AUTH_SESSION_NEEDED = forbidden(
    "auth.restricted_credential",
    "An API key can't create a key with the scope delivery. Log in to create it.",
)
AUTH_LOGIN_AGAIN = forbidden(
    "auth.login_again", "This request requires a login within the last 15 minutes. Log in again."
)
AUTH_SECOND_FACTOR = forbidden(
    "auth.second_factor",
    "This request requires a second factor. Log in with a second factor, or set one up.",
)
AUTH_CSRF = forbidden(
    "auth.csrf",
    "To change data with a session cookie, send the {header} header or an Origin header with the "
    "origin of this site.",
    header="X-CSRF-Token",
)

QUOTA_EXCEEDED = forbidden(
    "quota.exceeded",
    "This would exceed your plan's limit for {quota}. You have used {used} of {limit}.",
    quota="lists",
    used=5,
    limit=5,
)

API_KEY_NAME = invalid(
    "api_key.name", "The name of an API key must have 1 to {most} characters.", most=200
)
API_KEY_LISTS = invalid_at(
    "body.list_ids",
    "api_key.list_ids",
    "limits only the scope delivery, which the key doesn't have",
)
API_KEY_EXPIRY = invalid_at("body.expires_at", "api_key.expiry", "must be in the future")
API_KEY_NOT_FOUND = not_found("api_key.not_found", "There is no API key with this id.")
SESSION_NOT_FOUND = not_found("session.not_found", "There is no session with this id.")

LOGIN_PAUSED = rate_limited("login.paused", "Too many failed logins. Wait, or reset your password.")
LOGIN_BUSY = unavailable(
    "login.busy",
    "Too many people are logging in at the moment. Try again in a few seconds.",
    retry_after=5,
)

# This module doesn't declare the errors of the OAuth protocol (RFC 6749), because the OAuth library
# creates them.
OAUTH_CLIENT_NOT_FOUND = not_found(
    "oauth_client.not_found", "There is no OAuth client with this id."
)
OAUTH_CLIENT_NAME = invalid(
    "oauth_client.name",
    "The name of an OAuth client must have 1 to {most} printable characters.",
    most=100,
)
OAUTH_CLIENT_REDIRECT_URI_MISSING = invalid(
    "oauth_client.redirect_uri", "An OAuth client needs at least one redirect URI."
)
OAUTH_CLIENT_REDIRECT_URI = invalid(
    "oauth_client.redirect_uri",
    "The redirect URI {uri} {reason}.",
    uri="https://example.com/#there",
    reason="has a fragment",
)
OAUTH_CLIENT_SCOPES_MISSING = invalid(
    "oauth_client.scopes", "An OAuth client needs at least one scope."
)
OAUTH_CLIENT_SCOPES = invalid(
    "oauth_client.scopes", "An OAuth client can't have the scope {scopes}.", scopes="delivery"
)
GRANT_NOT_FOUND = not_found("grant.not_found", "There is no grant with this id.")
