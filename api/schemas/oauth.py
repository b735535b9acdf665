"""The request and response bodies of the API endpoints for OAuth."""

from typing import Annotated

from pydantic import BeforeValidator, Field

from api.schemas.envelope import Schema, Timestamp, Url
from core.scopes import Scope, list_known_scopes


class TokenAnswer(Schema):
    """A pair of tokens (RFC 6749, section 5.1)."""

    access_token: str = Field(examples=["pra_…"])
    token_type: str = Field(examples=["Bearer"])
    expires_in: int = Field(description="Lifetime of the access token in seconds", examples=[3600])
    refresh_token: str = Field(description="A token for one refresh", examples=["prr_…"])
    scope: str = Field(description="Granted scopes", examples=["credit.read"])


class IntrospectionAnswer(Schema):
    """Details of a token (RFC 7662, section 2.2). For an invalid token, the response contains only
    `active`.
    """

    active: bool
    client_id: str | None = Field(default=None, examples=["prc_7Kd02mQx"])
    scope: str | None = Field(default=None, examples=["credit.read"])
    sub: str | None = Field(default=None, examples=["4831920047116"])
    iss: str | None = Field(default=None, examples=["https://api.example.com"])
    iat: int | None = Field(default=None, examples=[1795253400])
    exp: int | None = Field(default=None, examples=[1795257000])
    token_type: str | None = Field(default=None, examples=["Bearer"])


class OAuthError(Schema):
    """An OAuth error (RFC 6749, section 5.2)."""

    error: str = Field(examples=["invalid_grant"])
    error_description: str | None = Field(default=None, examples=["The code was used before."])


class UserInfo(Schema):
    sub: str = Field(description="The user's id", examples=["4831920047116"])
    email: str
    name: str | None = Field(
        default=None, description="Name of the user. Omitted if the user has no name."
    )


class Metadata(Schema):
    """Metadata of the authorization server (RFC 8414, section 2)."""

    issuer: Url = Field(examples=["https://api.example.com"])
    authorization_endpoint: Url = Field(examples=["https://api.example.com/oauth/authorize"])
    token_endpoint: Url = Field(examples=["https://api.example.com/oauth/token"])
    revocation_endpoint: Url = Field(examples=["https://api.example.com/oauth/revoke"])
    introspection_endpoint: Url = Field(examples=["https://api.example.com/oauth/introspect"])
    userinfo_endpoint: Url = Field(examples=["https://api.example.com/oauth/userinfo"])
    scopes_supported: list[str] = Field(examples=[["credit.read", "attachment"]])
    response_types_supported: list[str] = Field(examples=[["code"]])
    response_modes_supported: list[str] = Field(examples=[["query"]])
    grant_types_supported: list[str] = Field(examples=[["authorization_code", "refresh_token"]])
    token_endpoint_auth_methods_supported: list[str] = Field(
        examples=[["client_secret_basic", "none"]]
    )
    revocation_endpoint_auth_methods_supported: list[str] = Field(
        examples=[["client_secret_basic", "none"]]
    )
    introspection_endpoint_auth_methods_supported: list[str] = Field(
        examples=[["client_secret_basic"]]
    )
    code_challenge_methods_supported: list[str] = Field(examples=[["S256"]])
    authorization_response_iss_parameter_supported: bool


class GrantRecord(Schema):
    id: int
    client_id: str = Field(examples=["prc_7Kd02mQx"])
    client_name: str = Field(examples=["Writing Desk"])
    scopes: Annotated[list[Scope], BeforeValidator(list_known_scopes)]
    created_at: Timestamp
    updated_at: Timestamp = Field(description="Time of the most recent consent")
