"""The part of the OpenAPI document that describes the access of a route."""

from dataclasses import dataclass, field

from core.errors import access, mailing
from core.errors.catalogue import ErrorType
from core.scopes import GRANTABLE_SCOPES, Scope

# OpenAPI's security requirements: each maps a scheme to the scopes that the scheme needs.
Security = list[dict[str, list[str]]]

_MISSING_OR_INVALID = [
    access.AUTH_CREDENTIALS_MISSING,
    access.AUTH_INVALID_API_KEY,
    access.AUTH_SECOND_FACTOR,
]


@dataclass(frozen=True)
class AccessDocs:
    """The documentation of an access; empty for a public route.

    Attributes:
        credential: a sentence that says which credential is needed.
        errors: the errors of missing and refused credentials.
        security: the authentication schemes that the route accepts.
    """

    credential: str = ""
    errors: list[ErrorType] = field(default_factory=list)
    security: Security = field(default_factory=list)


def describe_optional_credential() -> AccessDocs:
    return AccessDocs(
        "Credential: none needed; any is taken.",
        [access.AUTH_INVALID_API_KEY, access.AUTH_SECOND_FACTOR],
        [{}, *_every_scheme()],
    )


def describe_any_credential(sentence: str) -> AccessDocs:
    return AccessDocs(sentence, _MISSING_OR_INVALID, _every_scheme())


def describe_unrestricted_credential() -> AccessDocs:
    return AccessDocs(
        "Credential: a session, or an API key without restriction to scopes.",
        [*_MISSING_OR_INVALID, access.AUTH_RESTRICTED_CREDENTIAL],
        _own_schemes(),
    )


def describe_scope(scope: Scope) -> AccessDocs:
    # People can't grant some scopes to programs, so no OAuth token has these scopes.
    security = _every_scheme(scope) if scope in GRANTABLE_SCOPES else _own_schemes(scope)
    errors = [*_MISSING_OR_INVALID, access.AUTH_INSUFFICIENT_SCOPE.fill(scope=scope)]
    return AccessDocs(f"Scope: `{scope}`.", errors, security)


def describe_scope_or_trace(scope: Scope) -> AccessDocs:
    errors = [
        access.AUTH_CREDENTIALS_OR_TRACE_MISSING,
        access.AUTH_INVALID_API_KEY,
        access.AUTH_SECOND_FACTOR,
        mailing.TRACE_INVALID,
        access.AUTH_INSUFFICIENT_SCOPE.fill(scope=scope),
    ]
    sentence = f"Credential: a trace id, or a login. Scope: `{scope}`."
    return AccessDocs(sentence, errors, [{}, *_every_scheme(scope)])


def _own_schemes(*scopes: Scope) -> Security:
    return [{name: [scope.value for scope in scopes]} for name in ("bearer", "apiKey", "session")]


def _every_scheme(*scopes: Scope) -> Security:
    return [*_own_schemes(*scopes), {"oauth2": [scope.value for scope in scopes]}]
