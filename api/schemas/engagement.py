"""The request and response bodies about the engagement of members and lists."""

from datetime import date
from typing import Literal, Self

from pydantic import Field

from api.schemas.envelope import Body, Schema, Timestamp
from models import EngagementMode
from services.engagement.figures import ActivityKey, EngagementFigures


class MemberEngagement(Schema):
    """How many mailings the member received, opened and clicked, and the last day of each in UTC.

    Opens by a machine, such as a proxy of a mail provider, count separately.
    """

    measured_since: date = Field(
        description="Day of the first delivery, open or click that was recorded",
        examples=["2026-09-01"],
    )
    delivered: int = Field(examples=[12])
    opens: int = Field(examples=[9])
    machine_opens: int = Field(examples=[0])
    clicks: int = Field(examples=[2])
    last_delivered: date | None = Field(examples=["2026-11-28"])
    last_opened: date | None = Field(examples=["2026-11-29"])
    last_machine_opened: date | None = Field(examples=[None])
    last_clicked: date | None = Field(examples=["2026-11-14"])
    bounces: int = Field(description="Number of consecutive soft bounces", examples=[0])
    last_bounced: date | None = Field(examples=[None])


class EngagementChoice(Schema):
    """The member's latest answer to the question whether the list may record opens and clicks."""

    answer: Literal["yes", "no"] = Field(examples=["yes"])
    at: Timestamp = Field(examples=["2026-11-21T09:30:00.000000Z"])


class EngagementSetting(Body):
    enabled: bool = Field(
        description="Must be false, because only the person can say yes.", examples=[False]
    )


class EngagementAnswers(Schema):
    """Numbers of active members by their latest answer."""

    yes: int = Field(examples=[120])
    no: int = Field(examples=[14])
    none: int = Field(examples=[4796])


class ActivityRow(Schema):
    key: ActivityKey = Field(
        description="`30`, `90`, `180` and `365` for members whose last open or click was at most "
        "this many days ago, and who aren't in an earlier row. `older` for an earlier open or "
        "click, `never` for members who received mails without any, and `unknown` for members "
        "without a recorded delivery."
    )
    members: int = Field(examples=[61])


class ListEngagement(Schema):
    mode: EngagementMode
    answers: EngagementAnswers
    activity: list[ActivityRow]
    would_delete: int | None = Field(
        description="Number of members whose engagement the mode in the query would delete. null "
        "without a mode.",
        examples=[None],
    )

    @classmethod
    def of(cls, figures: EngagementFigures) -> Self:
        return cls(
            mode=figures.mode,
            answers=EngagementAnswers(**figures.answers),
            activity=[
                ActivityRow(key=key, members=members) for key, members in figures.activity.items()
            ],
            would_delete=figures.would_delete,
        )
