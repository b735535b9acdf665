"""The request and response bodies of the API endpoints for users, API keys and events."""

from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field

from api.schemas.accounts import AccountRecord
from api.schemas.envelope import AtMost, Body, ChangesBody, Moment, Schema, Timestamp
from api.schemas.senders import ListIds
from core.scopes import Scope, list_known_scopes
from core.settings.notations import PlanQuota
from models import RecordedEvent
from services.event_origins import CredentialKind
from services.security_events import EventType

# Strict mode is off for ``Scope``, because strict mode accepts only enum members, and JSON contains
# texts.
ScopeName = Annotated[Scope, Field(strict=False)]


# The maximum number of scopes in a request exceeds the number of different scopes, because a caller
# may repeat a scope.
_MAX_SCOPES = 100


class QuotaRecord(Schema):
    used: int = Field(examples=[120])
    limit: int | None = Field(
        description="Limit of the quota, or null for no limit", examples=[1000]
    )


class UserRecord(Schema):
    id: int
    email: str = Field(examples=["nora@example.com"])
    name: str | None = Field(examples=["Nora Owner"])
    plan: str = Field(description="free or paid", examples=["free"])
    quotas: dict[PlanQuota, QuotaRecord] = Field(
        description="Quotas by name. storage_mb counts files and rows in units of 1,048,576 bytes.",
        examples=[{"members": {"used": 120, "limit": 1000}, "lists": {"used": 1, "limit": 5}}],
    )
    import_mails: bool = Field(
        description="Whether the user receives an e-mail at the end of each import of a file",
        examples=[True],
    )
    account: AccountRecord = Field(description="Account to which plan and quotas belong")
    created_at: Timestamp
    updated_at: Timestamp


class UserChanges(ChangesBody):
    import_mails: bool = Field(
        default=True,
        description="Whether to send an e-mail at the end of each import of a file",
        examples=[False],
    )


class NewApiKey(Body):
    name: str = Field(min_length=1, max_length=200, examples=["import script"])
    scopes: Annotated[list[ScopeName], AtMost(_MAX_SCOPES)] | None = Field(
        default=None,
        description="Scopes of the key. null grants every permission of the user except delivery. "
        "The scope delivery requires list_ids.",
        examples=[["attachment"]],
    )
    list_ids: ListIds | None = Field(
        default=None,
        description="Ids of your lists to which the scope delivery is limited. The key can export "
        "the rosters of these lists, and mail their members.",
        examples=[None],
    )
    expires_at: Moment | None = Field(
        default=None, description="Time when the key expires, or null for no expiry"
    )


class ApiKeyRecord(Schema):
    id: int
    name: str = Field(examples=["import script"])
    last_four: str = Field(
        description="The last characters of the key, which help to recognise the key",
        examples=["x7Qa"],
    )
    scopes: Annotated[
        list[Scope] | None, BeforeValidator(lambda names: names and list_known_scopes(names))
    ] = Field(examples=[["attachment"]])
    list_ids: list[int] | None = Field(
        description="Ids of the lists to which the scope delivery is limited, or null for no limit",
        examples=[None],
    )
    created_at: Timestamp
    expires_at: Timestamp | None = Field(examples=[None])
    last_used_at: Timestamp | None
    revoked_at: Timestamp | None = Field(examples=[None])


class CreatedApiKey(ApiKeyRecord):
    key: str = Field(description="The key itself, which is shown only once", examples=["prk_…"])


class ApiRequestRecord(Schema):
    occurred_at: Timestamp
    method: str = Field(examples=["POST"])
    route: str = Field(
        description="Template of the path, without ids and addresses",
        examples=["/lists/{list_id}/members/add"],
    )
    status: int = Field(
        description="Status of the response, or 499 if the caller disconnected before the response",
        examples=[429],
    )
    code: str | None = Field(
        description="Error code of the response, or null for a response without an error",
        examples=["rate.limited"],
    )
    request_id: str
    milliseconds: int = Field(description="Time until the end of the response")


class ApiRequestsPagination(Schema):
    limit: int
    next_cursor: str | None = Field(description="Cursor of the next page, or null on the last page")


class ApiRequestsPage(Schema):
    pagination: ApiRequestsPagination
    items: list[ApiRequestRecord]


class EventCredential(Schema):
    kind: CredentialKind = Field(
        description="How the action was performed. command means that an operator "
        "used the command line or the operator pages."
    )
    id: int | None


class SecurityEvent(Schema):
    id: int
    type: EventType
    occurred_at: Timestamp
    ip: str | None = Field(
        description="IP address from which the action was performed", examples=["192.0.2.7"]
    )
    user_agent: str | None = Field(examples=["Mozilla/5.0 (X11; Linux x86_64)"])
    credential: EventCredential | None = Field(
        description="Credential that performed the action, if any"
    )
    detail: dict[str, Any] = Field(
        description="Ids and numbers that the action refers to", examples=[{"key_id": 7}]
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
    next_cursor: str | None = Field(description="Cursor of the next page, or null on the last page")


class SecurityEventsPage(Schema):
    pagination: EventsPagination
    items: list[SecurityEvent]
