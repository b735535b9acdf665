"""What clients may know beforehand (RFC 8414)."""

from typing import Any

from core.scopes import EXPLANATIONS
from services.oauth.adapters import GRANT_TYPES
from services.oauth.endpoints import Introspection, Revocation
from services.oauth.server import CLIENT_METHODS

AUTHORIZE_PATH = "/oauth/authorize"
TOKEN_PATH = "/oauth/token"  # noqa: S105 - an address
REVOKE_PATH = "/oauth/revoke"
INTROSPECT_PATH = "/oauth/introspect"
USERINFO_PATH = "/oauth/userinfo"
# Where people see what they gave, and take it back.
GRANTS_PATH = "/account/grants"
METADATA_PATH = "/.well-known/oauth-authorization-server"


def metadata(public_base: str) -> dict[str, Any]:
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
        "grant_types_supported": list(GRANT_TYPES),
        "token_endpoint_auth_methods_supported": list(CLIENT_METHODS),
        "revocation_endpoint_auth_methods_supported": list(Revocation.CLIENT_AUTH_METHODS),
        "introspection_endpoint_auth_methods_supported": list(Introspection.CLIENT_AUTH_METHODS),
        "code_challenge_methods_supported": ["S256"],
        "authorization_response_iss_parameter_supported": True,
    }
