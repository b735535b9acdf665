from typing import Annotated, Any, Self

from pydantic import Field

from api.schemas.envelope import Body, Moment, Schema, Timestamp
from core.scopes import Scope
from core.settings.plan_quotas import PlanQuota
from models import RecordedEvent
from services.events.catalogue import EventType
from services.events.event_origins import CredentialKind

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


class EventCredential(Schema):
    kind: CredentialKind = Field(description="command: the operator's command line")
    id: int | None


class SecurityEvent(Schema):
    id: int
    type: EventType
    occurred_at: Timestamp
    ip: str | None = Field(description="The address from which it happened", examples=["192.0.2.7"])
    user_agent: str | None
    credential: EventCredential | None = Field(description="By which it happened, if by any")
    detail: dict[str, Any] = Field(
        description="The ids and numbers of what it is about", examples=[{"key_id": 7}]
    )

    @classmethod
    def of(cls, event: RecordedEvent) -> Self:
        kind = event.credential_kind
        credential = (
            None
            if kind is None
            else EventCredential(kind=CredentialKind(kind), id=event.credential_id)
        )
        return cls.of_row(event, credential=credential)


class EventsPagination(Schema):
    limit: int
    next_cursor: str | None = Field(description="For the next page; null: this is the last one")


class SecurityEventsPage(Schema):
    pagination: EventsPagination
    items: list[SecurityEvent]
