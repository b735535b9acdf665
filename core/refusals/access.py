"""Credentials, keys, sessions and logins."""

from core.errors import Kind
from core.refusals.refusal import Refusal

AUTH_CREDENTIALS_MISSING = Refusal(
    Kind.UNAUTHENTICATED,
    "auth.credentials_missing",
    "Send an API key or access token as 'Authorization: Bearer …'.",
)
AUTH_CREDENTIALS_OR_TRACE_MISSING = Refusal(
    Kind.UNAUTHENTICATED,
    "auth.credentials_missing",
    "Send a trace_id, or credentials of your own.",
)
AUTH_CREDENTIALS_DISAGREE = Refusal(
    Kind.UNAUTHENTICATED,
    "auth.credentials_disagree",
    "The request carries credentials that differ.",
)
AUTH_SCHEME_UNKNOWN = Refusal(
    Kind.UNAUTHENTICATED,
    "auth.scheme_unknown",
    "The Authorization header must read 'Bearer <token>'.",
)
AUTH_INVALID_API_KEY = Refusal(
    Kind.UNAUTHENTICATED,
    "auth.invalid_credentials",
    "The API key is unknown, mistyped or revoked.",
)
AUTH_INVALID_SESSION = Refusal(
    Kind.UNAUTHENTICATED, "auth.invalid_credentials", "The session is over. Log in again."
)
AUTH_INVALID_ACCESS_TOKEN = Refusal(
    Kind.UNAUTHENTICATED,
    "auth.invalid_credentials",
    "The access token is unknown, mistyped, expired or revoked.",
)
AUTH_METRICS_TOKEN = Refusal(
    Kind.UNAUTHENTICATED, "auth.metrics_token", "Send the metrics token as a bearer token."
)
AUTH_INSUFFICIENT_SCOPE = Refusal(
    Kind.FORBIDDEN,
    "auth.insufficient_scope",
    "This needs the scope {scope}.",
    examples={"scope": "attachment"},
)
AUTH_RESTRICTED_CREDENTIAL = Refusal(
    Kind.FORBIDDEN,
    "auth.restricted_credential",
    "This needs a session or an unrestricted API key.",
)
AUTH_SCOPE_NOT_GRANTABLE = Refusal(
    Kind.FORBIDDEN, "auth.scope_not_grantable", "Only the operator gives the scope delivery."
)
AUTH_CSRF = Refusal(
    Kind.FORBIDDEN,
    "auth.csrf",
    "With a session, a write needs our own Origin or the {header} header.",
    examples={"header": "X-CSRF-Token"},
)

API_KEY_NAME = Refusal(
    Kind.INVALID,
    "api_key.name",
    "A key's name has 1 to {most} characters.",
    examples={"most": 200},
)
API_KEY_NOT_FOUND = Refusal(Kind.NOT_FOUND, "api_key.not_found", "There is no such API key.")
SESSION_NOT_FOUND = Refusal(Kind.NOT_FOUND, "session.not_found", "There is no such session.")

LOGIN_PAUSED = Refusal(
    Kind.RATE_LIMITED,
    "login.paused",
    "Too many logins failed. Wait, or ask for a new password by mail.",
)
LOGIN_BUSY = Refusal(
    Kind.UNAVAILABLE, "login.busy", "Too many people log in at once.", retry_after=5
)
