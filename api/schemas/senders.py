"""The request and response bodies of the API endpoints for senders and their reports."""

from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field

from api.schemas.envelope import AtMost, Body, ChangesBody, Schema, Timestamp
from core import ids
from core.settings import Settings
from integrations.senders.port import SenderProvider
from models import ReportOutcome, Sender, SenderState
from services.senders.provider_keys import KEY_NAMES, MAX_KEY_CHARACTERS, MAX_TOPIC_CHARACTERS
from services.senders.report import ReceivedReport, describe_report
from services.senders.senders import (
    MAX_LISTS_PER_SENDER,
    MAX_NAME_CHARACTERS,
    SenderFigures,
    build_events_url,
)

# Turn off Pydantic's strict mode, because strict mode accepts only enum members, but a JSON request
# body contains strings.
ProviderName = Annotated[SenderProvider, Field(strict=False)]


def _strip_name(name: str) -> str:
    if not 1 <= len(stripped := name.strip()) <= MAX_NAME_CHARACTERS:
        raise ValueError(f"must have 1 to {MAX_NAME_CHARACTERS} characters")
    return stripped


def _refuse_derived_state(state: SenderState) -> SenderState:
    if state not in (SenderState.PAUSED, SenderState.WORKING):
        raise ValueError("must be paused or working")
    return state


Name = Annotated[
    str,
    Field(description=f"1 to {MAX_NAME_CHARACTERS} characters", examples=["Our mail server"]),
    AfterValidator(_strip_name),
]
ListIds = Annotated[
    list[Annotated[int, Field(ge=0, le=ids.MAX_ID)]],
    Field(min_length=1, examples=[[4711]]),
    AtMost(MAX_LISTS_PER_SENDER),
]
StateName = Annotated[SenderState, Field(strict=False), AfterValidator(_refuse_derived_state)]
ProviderKey = Annotated[str, Field(max_length=MAX_KEY_CHARACTERS)]
TopicArn = Annotated[
    str,
    Field(
        max_length=MAX_TOPIC_CHARACTERS,
        description="ARN of the Amazon SNS topic with the reports. Only for the provider ses.",
        examples=["arn:aws:sns:eu-west-1:123456789012:mail-events"],
    ),
]
_KEY_TEXT = "{} Only for the provider {}. The value is never shown again."


class _ProviderKeys(Body):
    topic_arn: TopicArn | None = None
    signing_key: ProviderKey | None = Field(
        default=None, description=_KEY_TEXT.format("HTTP webhook signing key.", "mailgun")
    )
    public_key: ProviderKey | None = Field(
        default=None,
        description=_KEY_TEXT.format("Verification key, in base64 or PEM.", "sendgrid"),
    )
    signing_secret: ProviderKey | None = Field(
        default=None,
        description=_KEY_TEXT.format("Signing secret of the webhook.", "resend"),
        examples=["whsec_…"],
    )

    @property
    def keys(self) -> dict[str, str]:
        """Map field names such as ``signing_key`` to the provider keys in the request body."""
        values = {name: getattr(self, name) for name in KEY_NAMES.values()}
        return {name: value for name, value in values.items() if value is not None}


class NewSender(_ProviderKeys):
    name: Name
    provider: ProviderName = Field(examples=["generic"])
    list_ids: ListIds | None = Field(
        default=None,
        description="Ids of the lists that the sender covers. null for all lists of the account, "
        "including later ones.",
    )
    any_list: bool = Field(
        default=False,
        description="Whether the sender covers every list of the installation. Requires a key "
        "with the scope delivery.",
    )


class SenderChange(_ProviderKeys, ChangesBody):
    """The fields of a sender to change. Fields that the request omits keep their values."""

    name: Name | None = None
    list_ids: ListIds | None = Field(
        default=None,
        description="Ids of the lists that the sender covers. null for all lists of the account.",
    )
    any_list: bool | None = None
    state: StateName | None = Field(
        default=None,
        description="paused or working. Requests of a paused sender are rejected.",
        examples=["paused"],
    )


class SenderTrial(Body):
    body: str = Field(
        max_length=2_000_000,
        description="Request body that the provider would post, as text",
        examples=['{"type": "delivery.reports", "data": {"reports": []}}'],
    )
    headers: Annotated[dict[str, str], AtMost(100)] | None = Field(
        default=None,
        description="HTTP headers of the tested request. Pressroom doesn't verify their "
        "signatures.",
    )


class SenderRecord(Schema):
    id: int
    name: str = Field(examples=["Our mail server"])
    provider: str = Field(examples=["generic"])
    url: str = Field(
        description="URL to which the provider posts reports",
        examples=["https://news.example.com/senders/7/events"],
    )
    list_ids: list[int] | None = Field(
        description="Ids of the covered lists. null for all lists of the account, including later "
        "ones."
    )
    any_list: bool = Field(description="Whether the sender covers every list of the installation")
    key_id: int | None = Field(
        description="Id of the API key that created the sender or last changed its secret. null if "
        "the owner used no API key. If this key is revoked without `keep_endpoints=1`, the "
        "sender is deleted."
    )
    state: SenderState = Field(
        description="waiting before the first report, working, failing or paused"
    )
    last_report_at: Timestamp | None
    last_refused_at: Timestamp | None = Field(description="Time of the last rejected request")
    refused_24h: int = Field(description="Number of rejected requests in the last 24 hours")
    outcomes_24h: dict[str, int] = Field(
        description="Number of reports by outcome in the last 24 hours",
        examples=[{"applied": 4120, "duplicate": 12}],
    )
    warnings: list[str] = Field(
        description="Codes of problems to solve: sns_signature_v1, calls_rejected, "
        "topic_unsubscribed or no_reports. Each code except sns_signature_v1 means that the "
        "sender is failing.",
        examples=[["sns_signature_v1"]],
    )
    created_at: Timestamp
    updated_at: Timestamp

    @classmethod
    def of_sender(
        cls, sender: Sender, settings: Settings, figures: SenderFigures, **others: Any
    ) -> Self:
        return cls.of_row(
            sender,
            url=build_events_url(settings.public_base, sender.id),
            refused_24h=figures.refused,
            outcomes_24h=dict(figures.outcomes),
            **others,
        )


class CreatedSender(SenderRecord):
    secret: str | None = Field(
        description="Secret that authenticates the sender's requests. The secret is shown only "
        "once. null if the provider creates the key itself.",
        examples=["whsec_…"],
    )
    username: str | None = Field(
        description="User name for HTTP Basic, only for the providers postmark and brevo",
        examples=["pressroom"],
    )


class RotatedSenderSecret(Schema):
    secret: str = Field(
        description="The sender's new secret, which only this response contains. The former secret "
        "stays valid for 24 hours.",
        examples=["whsec_…"],
    )


class ReportRecord(Schema):
    id: int
    received_at: Timestamp
    occurred_at: Timestamp
    kind: str | None = Field(
        description="delivered, opened, clicked, bounced, complained or unsubscribed. null for "
        "events of other types.",
        examples=["bounced"],
    )
    outcome: ReportOutcome = Field(description="Effect of the report")
    code: str | None = Field(
        description="Cause of a bounce, or the provider's name for the event if kind is null",
        examples=["hard"],
    )
    status: str | None = Field(description="Enhanced status code of a bounce", examples=["5.1.1"])
    mailing_id: int | None
    list_id: int | None
    user_id: int | None
    recipient: str | None = Field(
        description="Masked address of the recipient, or null if the recipient is a member",
        examples=["a…@e….org"],
    )


class ReportsPagination(Schema):
    limit: int
    next_cursor: str | None = Field(description="Cursor of the next page, or null on the last page")


class SenderReportsPage(Schema):
    pagination: ReportsPagination
    items: list[ReportRecord]


class TriedReport(Schema):
    kind: str | None = Field(examples=["bounced"])
    outcome: ReportOutcome | None = Field(
        description="Effect that the report would have, or null without the scope subscription.read"
    )
    code: str | None = Field(examples=["hard"])
    status: str | None = Field(examples=["5.1.1"])
    mailing_id: int | None
    list_id: int | None
    user_id: int | None
    recipient: str | None = Field(examples=["a…@e….org"])

    @classmethod
    def of_report(cls, received: ReceivedReport) -> Self:
        return cls.model_validate(describe_report(received)._asdict())

    @classmethod
    def of_unread_report(cls, received: ReceivedReport) -> Self:
        """Return only the facts in the body, and nothing that tells who is a member."""
        unknown = dict.fromkeys(("outcome", "mailing_id", "list_id", "user_id", "recipient"))
        return cls.model_validate(describe_report(received)._asdict() | unknown)
