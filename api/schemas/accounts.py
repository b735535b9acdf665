"""The response bodies of the API endpoints for accounts."""

from pydantic import Field

from api.schemas.envelope import Schema
from core.permissions import Role


class AccountRecord(Schema):
    id: int
    name: str | None = Field(description="Name of the account's owner", examples=["Nora Owner"])
    role: Role | None = Field(
        description="Role of the person in the account. null for API keys, which have only scopes.",
        examples=["owner"],
    )
