from typing import Annotated, Any, NotRequired

from pydantic import ConfigDict, Field
from typing_extensions import TypedDict

from api.schemas.envelope import Schema, Timestamp


class MemberInput(TypedDict):
    # Only plain types, which compiled code checks: a request has up to a hundred thousand of these.
    email: str
    name: NotRequired[str | None]


class MembersInput(TypedDict):
    __pydantic_config__ = ConfigDict(strict=True)  # type: ignore[misc]

    members: Annotated[list[MemberInput], Field(min_length=1)]


class ImportRecord(Schema):
    id: int
    list_id: int
    source: str = Field(description="members (of one request) or file")
    filename: str | None
    size: int = Field(description="Bytes")
    dry_run: bool
    on_existing: str = Field(description="skip or update")
    status: str = Field(description="running, succeeded, failed or cancelled")
    error: dict[str, Any] | None
    description: dict[str, Any] | None = Field(description="What the file was taken for")
    received: int = Field(description="Rows of the file; all of them once it has been split")
    added: int = Field(description="Made active")
    already: int = Field(description="Were active members")
    opted_out: int = Field(description="Said no, here or by the file's own mark")
    invalid: int
    duplicate: int = Field(description="Came before in the same file")
    updated: int = Field(description="Of the already ones: got another name or tier")
    over_quota: int = Field(description="Not added, since the plan has no room for more members")
    undone: int = Field(description="Taken back by an undo")
    kept: int = Field(
        description="Left alone by the undo, since they were changed after the import"
    )
    undone_at: Timestamp | None
    undo_until: Timestamp | None = Field(
        description="Until when it can be undone; null while it runs, and after its undo"
    )
    errors_url: str = Field(description="CSV of the rows that were not added; lasts 15 minutes")
    created_at: Timestamp
    finished_at: Timestamp | None
