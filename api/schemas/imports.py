"""The request and response bodies of the API endpoints for imports."""

from typing import Annotated, Any, NotRequired

from pydantic import ConfigDict, Field
from typing_extensions import TypedDict

from api.schemas.envelope import Schema, Timestamp, Url


class MemberInput(TypedDict):
    # The fields of ``MemberInput`` have plain types, because Pydantic validates plain types
    # fastest. A request may contain a hundred thousand members.
    email: str
    name: NotRequired[str | None]


class MembersInput(TypedDict):
    __pydantic_config__ = ConfigDict(strict=True)  # type: ignore[misc]

    members: Annotated[list[MemberInput], Field(min_length=1)]


class ImportColumn(Schema):
    name: str = Field(examples=["Company"])
    becomes: str = Field(
        description="What it is to us, such as email, tags or fields.company; or ignored",
        examples=["fields.company"],
    )
    consent: str | None = Field(
        default=None,
        description="Only for a consent column. unsubscribed, subscribed or confirmed: the meaning "
        "of a yes in this column; status: the cells are statuses",
        examples=["unsubscribed"],
    )
    creates: str | None = Field(
        default=None, description="The type of the field that is made of it", examples=["text"]
    )
    written: str | None = Field(
        default=None,
        description="How it writes dates (dmy or mdy) or numbers (point or comma), where the file "
        "shows it",
        examples=["dmy"],
    )


class ImportRecord(Schema):
    id: int
    list_id: int
    source: str = Field(description="members (of one request) or file", examples=["file"])
    kind: str = Field(
        description="members, or the suppressed addresses of a sending product: suppressions, "
        "bounces or complaints",
        examples=["members"],
    )
    filename: str | None = Field(examples=["members.csv"])
    size: int = Field(description="Bytes", examples=[284113])
    dry_run: bool = Field(examples=[False])
    on_existing: str = Field(description="skip or update", examples=["skip"])
    create_fields: bool = Field(
        description="Whether unknown columns become fields", examples=[False]
    )
    date_order: str | None = Field(
        description="dmy or mdy, for columns of dates that don't show it", examples=[None]
    )
    encoding: str | None = Field(
        description="The encoding that the owner set, or that was detected in the whole file after "
        "the beginning of the file had suggested another one",
        examples=[None],
    )
    status: str = Field(
        description="running, succeeded, failed or cancelled", examples=["succeeded"]
    )
    error: dict[str, Any] | None = Field(examples=[None])
    description: dict[str, Any] | None = Field(
        description="What the file was taken for",
        examples=[{"format": "csv", "columns": {"email": "Email Address", "name": "Name"}}],
    )
    columns: list[ImportColumn] = Field(
        description="What the columns of the file become; the first 500"
    )
    ignored_columns: list[str] = Field(
        description="The columns that become nothing; the first 500", examples=[["Notes"]]
    )
    received: int = Field(
        description="Rows of the file; all of them once it has been split", examples=[5000]
    )
    added: int = Field(description="Made active", examples=[4930])
    already: int = Field(description="Were active members", examples=[40])
    opted_out: int = Field(description="Said no, here or by the file's own mark", examples=[12])
    invalid: int = Field(examples=[8])
    duplicate: int = Field(description="Came before in the same file", examples=[10])
    denied: int = Field(
        description="Not added, since a deny list has the address or its domain", examples=[0]
    )
    updated: int = Field(
        description="Of the already ones: got another name, tier, fields or tags", examples=[0]
    )
    left_out: int = Field(
        description="Values that rows were taken over without, since they don't fit their fields",
        examples=[0],
    )
    unknown_status: int = Field(
        description="Rows that are invalid because their consent value isn't recognised",
        examples=[0],
    )
    over_quota: int = Field(
        description="Not added, since the plan has no room for more members", examples=[0]
    )
    undone: int = Field(description="Taken back by an undo", examples=[0])
    kept: int = Field(
        description="Left alone by the undo, since they were changed after the import", examples=[0]
    )
    undone_at: Timestamp | None = Field(examples=[None])
    undo_until: Timestamp | None = Field(
        description="Until when it can be undone; null while it runs, and once nobody is left"
    )
    errors_url: Url = Field(
        description="CSV of the rows that were not added; lasts 15 minutes",
        examples=[
            "https://api.example.com/imports/6204117398252/errors.csv?expires=1795254300&signature=Zk3nq0"
        ],
    )
    created_at: Timestamp
    finished_at: Timestamp | None


class UndoHolder(Schema):
    kind: str = Field(description="bulk_action or import", examples=["bulk_action"])
    id: int
    name: str = Field(description="The action, or the name of the file", examples=["tag"])
    members: int = Field(examples=[143])


class UndoPreview(Schema):
    undone: int = Field(description="Would be as they were before the import", examples=[159])
    kept: int = Field(
        description="Would stay, since they were changed after the import", examples=[143]
    )
    left: int = Field(description="Are no members any more", examples=[0])
    held_by: list[UndoHolder] = Field(
        description="The bulk actions and imports that changed those who would stay: undo these "
        "first, then the import takes them back too; the 20 with most members"
    )
    is_exact: bool = Field(description="false: the import brought more than were counted")
