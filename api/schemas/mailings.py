"""The response bodies of the API endpoints for mailings."""

from typing import Self

from pydantic import Field

from api.schemas.envelope import Body, Schema, Timestamp
from models import Mailing
from services.subscriptions.exports import MAX_MAILING_LABEL_CHARACTERS
from services.subscriptions.mailings import ENGAGEMENT_FIGURES, MIN_MEASURED, is_measured
from services.subscriptions.members.bounce_recording import MAX_MAILING_AGE

_ENGAGEMENT_TEXT = f"{{}} null if `measured` is null or below {MIN_MEASURED}."


class MailingRecord(Schema):
    id: int = Field(description="Id of the job that exported the roster, or of the deliveries")
    label: str | None = Field(examples=["September letter"])
    created_at: Timestamp
    rows: int = Field(description="Number of people in the roster or in the deliveries")
    measured: int | None = Field(
        default=None,
        description="Number of these people whose opens and clicks the list recorded. "
        "Divide `opened` and `clicked` by this number. null for mailings from before release "
        "1.2.0.",
    )
    delivered: int
    hard_bounced: int
    soft_bounced: int = Field(
        description="Members whose mail bounced softly and wasn't delivered later"
    )
    blocked: int = Field(
        description="Bounces caused by the mail's sender or content, not by the recipient's address"
    )
    complained: int
    unsubscribed: int = Field(description="Unsubscriptions that senders reported")
    left: int = Field(
        default=0,
        description="Members who unsubscribed or turned mail off through the mail's links or its "
        "one-click button, or unsubscribed through a sender",
    )
    opened: int | None = Field(description=_ENGAGEMENT_TEXT.format("Members who opened the mail."))
    machine_opened: int | None = Field(
        description=_ENGAGEMENT_TEXT.format(
            "Members whose mail was opened by a program. If the member opened the mail too, both "
            "figures count the member."
        )
    )
    clicked: int | None = Field(description=_ENGAGEMENT_TEXT.format("Members who clicked a link."))
    reports_until: Timestamp = Field(
        description="End of the time in which reports change the figures"
    )

    @classmethod
    def of_mailing(cls, mailing: Mailing, left: int) -> Self:
        hidden = {} if is_measured(mailing) else dict.fromkeys(ENGAGEMENT_FIGURES)
        return cls.of_row(
            mailing,
            left=left,
            measured=mailing.measured,
            **hidden,
            reports_until=mailing.created_at + MAX_MAILING_AGE,
        )


class MailingChanges(Body):
    label: str | None = Field(
        max_length=MAX_MAILING_LABEL_CHARACTERS,
        description="Name of the mailing. null removes the name.",
        examples=["September letter"],
    )
