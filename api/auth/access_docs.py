"""Describes the access rules of routes for the OpenAPI document."""

from dataclasses import dataclass, field

from core.errors import access, mailing
from core.errors.catalogue import ErrorType
from core.scopes import GRANTABLE_SCOPES, Scope

# OpenAPI security requirements, each of which maps an authentication scheme to the required scopes.
Security = list[dict[str, list[str]]]

_MISSING_OR_INVALID = [
    access.AUTH_CREDENTIALS_MISSING,
    access.AUTH_INVALID_API_KEY,
    access.AUTH_SECOND_FACTOR,
]


@dataclass(frozen=True)
class AccessDocs:
    """The description of a route's access rule. ``credential`` says which credential the route
    needs.
    """

    credential: str = ""
    errors: list[ErrorType] = field(default_factory=list)
    security: Security = field(default_factory=list)


def describe_optional_credential() -> AccessDocs:
    return AccessDocs(
        "Credential: optional.",
        [access.AUTH_INVALID_API_KEY, access.AUTH_SECOND_FACTOR],
        [{}, *_all_schemes()],
    )


def describe_any_credential(sentence: str) -> AccessDocs:
    return AccessDocs(sentence, _MISSING_OR_INVALID, _all_schemes())


def describe_unrestricted_credential() -> AccessDocs:
    return AccessDocs(
        "Credential: a session or an unrestricted API key.",
        [*_MISSING_OR_INVALID, access.AUTH_RESTRICTED_CREDENTIAL],
        _schemes_without_oauth(),
    )


def describe_scope(scope: Scope) -> AccessDocs:
    # Mention OAuth only if users can grant the scope to OAuth apps.
    security = _all_schemes(scope) if scope in GRANTABLE_SCOPES else _schemes_without_oauth(scope)
    errors = [*_MISSING_OR_INVALID, access.AUTH_INSUFFICIENT_SCOPE.fill(scope=scope)]
    return AccessDocs(f"Scope: `{scope}`.", errors, security)


def describe_delivery_scope() -> AccessDocs:
    """Describe the rule of a route that limited keys may call for their lists only."""
    errors = [*_MISSING_OR_INVALID, access.AUTH_DELIVERY_SCOPE_NEEDED]
    security = _schemes_without_oauth(Scope.DELIVERY)
    return AccessDocs(f"Scope: `{Scope.DELIVERY}`.", errors, security)


def describe_scope_or_trace(scope: Scope) -> AccessDocs:
    errors = [
        access.AUTH_CREDENTIALS_OR_TRACE_MISSING,
        access.AUTH_INVALID_API_KEY,
        access.AUTH_SECOND_FACTOR,
        mailing.TRACE_INVALID,
        access.AUTH_INSUFFICIENT_SCOPE.fill(scope=scope),
    ]
    sentence = f"Credential: a trace id or a login. Scope: `{scope}`."
    return AccessDocs(sentence, errors, [{}, *_all_schemes(scope)])


def _schemes_without_oauth(*scopes: Scope) -> Security:
    return [{name: [scope.value for scope in scopes]} for name in ("bearer", "apiKey", "session")]


def _all_schemes(*scopes: Scope) -> Security:
    return [*_schemes_without_oauth(*scopes), {"oauth2": [scope.value for scope in scopes]}]
