from typing import Annotated

from pydantic import Field

from api.schemas.envelope import Body, Schema, Timestamp
from api.schemas.filters import EXAMPLE, FilterDocument
from core.ids import MAX_ID
from models import BulkAction, SubscriptionStatus
from services.mailing.export_sheets import ExportFormat, ExportKind
from services.mailing.segments.saved import MAX_SEGMENT_NAME_CHARACTERS

_NAME = f"1 to {MAX_SEGMENT_NAME_CHARACTERS} characters; a list has each once, whatever its case"


class SegmentRecord(Schema):
    id: int
    list_id: int
    name: str = Field(examples=["Readers in Rome"])
    filter: FilterDocument
    created_at: Timestamp
    updated_at: Timestamp


class CountedSegment(SegmentRecord):
    count: int | None = Field(
        default=None,
        description="How many members it means now; null where it would take too long to tell",
        examples=[1204],
    )
    count_is_exact: bool = Field(
        default=True,
        description="Otherwise it stands for a sample of 10,000 members of a large list",
        examples=[True],
    )


class NewSegment(Body):
    name: str = Field(description=_NAME, examples=["Readers in Rome"])
    filter: FilterDocument


class SegmentChanges(Body):
    name: str = Field(default="", description=_NAME, examples=["Readers in Rome"])
    filter: FilterDocument = Field(default=None, examples=[EXAMPLE])


class MemberChoice(Body):
    """Which members: those of a segment, or those of a filter."""

    segment_id: int | None = Field(
        default=None,
        ge=0,
        le=MAX_ID,
        description="Of the list; instead of a filter",
        examples=[None],
    )
    filter: FilterDocument | None = Field(default=None, examples=[EXAMPLE])


class NewExport(MemberChoice):
    kind: Annotated[ExportKind, Field(strict=False)]
    status: (
        Annotated[list[Annotated[SubscriptionStatus, Field(strict=False)]], Field(min_length=1)]
        | None
    ) = Field(
        default=None,
        description="Only members with one of these; of kind members alone. Without it: active "
        "ones or those that the filter names; without a filter all but removed ones",
        examples=[["active", "pending"]],
    )
    format: Annotated[ExportFormat, Field(strict=False)] = Field(
        default=ExportFormat.CSV, description="csv, or jsonl: one JSON object a line"
    )


class NewBulkAct(MemberChoice):
    action: Annotated[BulkAction, Field(strict=False)] = Field(
        description="tag and untag: value is the name of a tag. set_type: value is free, silver or "
        "gold; an end that has passed goes. remove, email_off: without a value",
        examples=["tag"],
    )
    value: str | None = Field(default=None, examples=["vip"])


class BulkPreview(Schema):
    matched: int | None = Field(
        description="How many members it is about; null where it would take too long to tell",
        examples=[1204],
    )
    is_exact: bool = Field(
        description="Otherwise the number stands for a sample of 10,000 members of a large list",
        examples=[True],
    )
