from pydantic import Field

from api.schemas.envelope import Schema, Timestamp
from core.scopes import Scope


class TokenAnswer(Schema):
    """RFC 6749, 5.1."""

    access_token: str = Field(examples=["pra_…"])
    token_type: str = Field(examples=["Bearer"])
    expires_in: int = Field(description="Seconds", examples=[3600])
    refresh_token: str = Field(description="For one refresh", examples=["prr_…"])
    scope: str = Field(description="What was given", examples=["credit.read"])


class IntrospectionAnswer(Schema):
    """RFC 7662, 2.2: of a token that does not count, `active` alone."""

    active: bool
    client_id: str | None = None
    scope: str | None = None
    sub: str | None = None
    iss: str | None = None
    iat: int | None = None
    exp: int | None = None
    token_type: str | None = None


class OAuthRefusal(Schema):
    """RFC 6749, 5.2."""

    error: str = Field(examples=["invalid_grant"])
    error_description: str | None = None


class UserInfo(Schema):
    sub: str = Field(description="The user's id")
    email: str
    name: str | None = Field(default=None, description="Left out where there is none")


class Metadata(Schema):
    """RFC 8414, 2."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    revocation_endpoint: str
    introspection_endpoint: str
    userinfo_endpoint: str
    scopes_supported: list[str]
    response_types_supported: list[str]
    response_modes_supported: list[str]
    grant_types_supported: list[str]
    token_endpoint_auth_methods_supported: list[str]
    revocation_endpoint_auth_methods_supported: list[str]
    introspection_endpoint_auth_methods_supported: list[str]
    code_challenge_methods_supported: list[str]
    authorization_response_iss_parameter_supported: bool


class GrantRecord(Schema):
    id: int
    client_id: str
    client_name: str
    scopes: list[Scope]
    created_at: Timestamp
    updated_at: Timestamp = Field(description="When it was last agreed to")
