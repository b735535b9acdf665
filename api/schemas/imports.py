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
        description="Meaning of the column, such as email, tags or fields.company, or ignored",
        examples=["fields.company"],
    )
    consent: str | None = Field(
        default=None,
        description="Meaning of a consent column. With unsubscribed, subscribed or "
        "confirmed, a yes in the column has that meaning. With status, the cells "
        "contain statuses. Omitted for other columns.",
        examples=["unsubscribed"],
    )
    creates: str | None = Field(
        default=None,
        description="Type of the field that the import creates from the column",
        examples=["text"],
    )
    written: str | None = Field(
        default=None,
        description="Detected format of dates (dmy or mdy) or numbers (point or comma) in the "
        "column, or null if no value shows the format",
        examples=["dmy"],
    )
    has_data: bool | None = Field(
        default=None,
        description="Whether a cell of the column isn't blank. Omitted unless the import is a "
        "dry run.",
        examples=[True],
    )


class ImportRecord(Schema):
    id: int
    list_id: int
    source: str = Field(
        description="members for members in one request, or file", examples=["file"]
    )
    kind: str = Field(
        description="members, or one of the suppression lists of a sending product: "
        "suppressions, bounces or complaints",
        examples=["members"],
    )
    filename: str | None = Field(examples=["members.csv"])
    size: int = Field(description="Size of the file in bytes", examples=[284113])
    dry_run: bool = Field(examples=[False])
    on_existing: str = Field(
        description="How active members are handled, skip or update", examples=["skip"]
    )
    create_fields: bool = Field(
        description="Whether the import creates fields for unknown columns", examples=[False]
    )
    date_order: str | None = Field(
        description="Order of day and month in ambiguous dates, dmy or mdy", examples=[None]
    )
    encoding: str | None = Field(
        description="Encoding of the file that the owner set. Also set if the whole file has "
        "a different encoding than its beginning suggested.",
        examples=[None],
    )
    sheet: str | None = Field(
        description="Sheet of the workbook that the owner chose", examples=[None]
    )
    status: str = Field(
        description="running, succeeded, failed or cancelled", examples=["succeeded"]
    )
    error: dict[str, Any] | None = Field(examples=[None])
    description: dict[str, Any] | None = Field(
        description="Detected format and columns of the file. For a workbook, `sheet` is the sheet "
        "that was read, and `sheets` lists all sheets.",
        examples=[{"format": "csv", "columns": {"email": "Email Address", "name": "Name"}}],
    )
    columns: list[ImportColumn] = Field(description="Meanings of the first 500 imported columns")
    ignored_columns: list[str] = Field(
        description="Names of the first 500 ignored columns", examples=[["Notes"]]
    )
    received: int = Field(
        description="Number of rows in the file. The number is final after the whole file has "
        "been read.",
        examples=[5000],
    )
    added: int = Field(description="Number of rows whose members became active", examples=[4930])
    already: int = Field(
        description="Number of rows whose members were already active", examples=[40]
    )
    opted_out: int = Field(
        description="Number of rows that opted out, on this list or in the file", examples=[12]
    )
    invalid: int = Field(examples=[8])
    duplicate: int = Field(
        description="Number of rows that repeat an earlier row of the file", examples=[10]
    )
    denied: int = Field(description="Number of rows rejected by the deny list", examples=[0])
    updated: int = Field(
        description="Number of already active members whose name, tier, fields or tags were "
        "updated",
        examples=[0],
    )
    left_out: int = Field(
        description="Number of values that were not imported because the values are invalid "
        "for their fields",
        examples=[0],
    )
    unknown_status: int = Field(
        description="Number of invalid rows whose consent value was not recognised",
        examples=[0],
    )
    over_quota: int = Field(
        description="Number of rows rejected because the plan's member limit was reached",
        examples=[0],
    )
    undone: int = Field(description="Number of members restored by an undo", examples=[0])
    kept: int = Field(
        description="Number of members that the undo did not restore, because the members "
        "changed after the import",
        examples=[0],
    )
    left: int = Field(
        description="Number of imported people who were no longer members when the import was "
        "undone",
        examples=[0],
    )
    undone_at: Timestamp | None = Field(examples=[None])
    undo_until: Timestamp | None = Field(
        description="Time until which the import can be undone. null during the import, and "
        "if no member is left to restore."
    )
    errors_url: Url | None = Field(
        description="URL of a CSV file with the rejected rows. The URL expires after 15 minutes. "
        "null if your role may not see members.",
        examples=[
            "https://api.example.com/imports/6204117398252/errors.csv?expires=1795254300&signature=Zk3nq0"
        ],
    )
    created_at: Timestamp
    finished_at: Timestamp | None


class UndoHolder(Schema):
    kind: str = Field(description="bulk_action or import", examples=["bulk_action"])
    id: int
    name: str = Field(
        description="Kind of the bulk action, or name of the imported file", examples=["tag"]
    )
    members: int = Field(examples=[143])


class UndoPreview(Schema):
    undone: int = Field(description="Number of members that an undo would restore", examples=[159])
    kept: int = Field(
        description="Number of members that an undo would not restore, because the members "
        "changed after the import",
        examples=[143],
    )
    left: int = Field(description="Number of people who are no longer members", examples=[0])
    held_by: list[UndoHolder] = Field(
        description="The 20 bulk actions and imports that changed the most of the kept "
        "members. Undo these actions first to be able to restore their members."
    )
    is_exact: bool = Field(
        description="Whether all members were counted. false if the import is larger than the "
        "counting limit."
    )
