from typing import Annotated

from pydantic import Field

from api.schemas.envelope import Body, Moment, Schema, Timestamp
from core.scopes import Scope
from core.settings.plan_quotas import PlanQuota

# In strict mode, an enum accepts only its members, which JSON can't express.
ScopeName = Annotated[Scope, Field(strict=False)]


class QuotaRecord(Schema):
    used: int
    limit: int | None = Field(description="null: no limit")


class UserRecord(Schema):
    id: int
    email: str
    name: str | None
    plan: str = Field(description="free or paid")
    quotas: dict[PlanQuota, QuotaRecord] = Field(
        description="By name; storage_mb is 1,048,576 bytes"
    )
    created_at: Timestamp
    updated_at: Timestamp


class NewApiKey(Body):
    name: str = Field(min_length=1, max_length=200, examples=["import script"])
    scopes: list[ScopeName] | None = Field(
        default=None,
        description="null: all that its user may do, without delivery",
        examples=[["attachment"]],
    )
    expires_at: Moment | None = Field(
        default=None, description="null: the key lasts until it is revoked"
    )


class ApiKeyRecord(Schema):
    id: int
    name: str
    last_four: str = Field(description="The key's last characters, to recognise it by")
    scopes: list[Scope] | None
    created_at: Timestamp
    expires_at: Timestamp | None
    last_used_at: Timestamp | None
    revoked_at: Timestamp | None


class CreatedApiKey(ApiKeyRecord):
    key: str = Field(description="The key itself, shown this once", examples=["prk_…"])
