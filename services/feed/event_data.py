"""Defines the data of each type of event. Fields can be added but are never removed."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

_MEMBER_EXAMPLE = {
    "user_id": 8123456789012345,
    "action": "requested",
    "via": "challenge",
    "status": "pending",
    "email_enabled": True,
    "changed": None,
    "reason": None,
    "email": "ada@example.com",
    "name": "Ada",
}


def _configure_example(**values: Any) -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": [values]})


class ShownData(BaseModel):
    """The content of the field ``data`` of an event in API responses."""

    @classmethod
    def example(cls) -> dict[str, Any]:
        sample: dict[str, Any] = cls.model_json_schema()["examples"][0]
        return sample


class MemberFacts(ShownData):
    model_config = _configure_example(**_MEMBER_EXAMPLE)

    user_id: int = Field(description="User id of the person")
    action: str = Field(
        description="Action in the member's history, for example `requested` or `edited`"
    )
    via: str = Field(
        description="How the change was made, for example `login`, `one-click`, `page` or `command`"
    )
    status: str = Field(description="Status of the subscription after the event")
    email_enabled: bool = Field(description="Whether the member receives mail after the event")
    changed: list[str] | None = Field(
        description="Names of other changed values: name, type, paid_expiry, email, tags or fields"
    )
    reason: str | None = Field(
        description="Why a sender's report changed the subscription, for example `bounced`. "
        "null if something else changed the subscription."
    )
    email: str | None = Field(
        description="Current address of the member on the list, or null after the person is erased"
    )
    name: str | None = Field(
        description="Current name of the member on the list, or null after the person is erased"
    )


class TransferFacts(MemberFacts):
    model_config = _configure_example(
        **(_MEMBER_EXAMPLE | {"action": "transferred_in", "via": "login", "status": "active"}),
        from_list_id=4711,
        to_list_id=4712,
    )

    from_list_id: int
    to_list_id: int


class SegmentFacts(ShownData):
    segment_id: int
    segment: str | None = Field(
        description="Current name of the segment, or null after the segment is deleted"
    )
    day: str = Field(
        description="Day of the segment, which begins at the hour of its watch",
        json_schema_extra={"format": "date"},
    )


class SegmentMemberFacts(SegmentFacts):
    model_config = _configure_example(
        segment_id=4713,
        segment="Readers in Rome",
        user_id=8123456789012345,
        entry=1,
        day="2026-11-21",
        status="active",
        email_enabled=True,
        email="ada@example.com",
        name="Ada",
    )

    user_id: int = Field(description="User id of the person")
    entry: int = Field(description="How many times the member has entered the segment")
    status: str = Field(description="Status of the subscription when the segment was compared")
    email_enabled: bool = Field(description="Whether the member receives mail")
    email: str | None = Field(
        description="Current address of the member on the list, or null after the person is erased"
    )
    name: str | None = Field(
        description="Current name of the member on the list, or null after the person is erased"
    )


class ManyChangesFacts(SegmentFacts):
    model_config = _configure_example(
        segment_id=4713, segment="Readers in Rome", day="2026-11-21", entered=12000, left=400
    )

    entered: int = Field(description="Number of members who entered the segment")
    left: int = Field(description="Number of members who left the segment")


class JobFacts(ShownData):
    status: str = Field(description="succeeded, failed or cancelled")
    job_id: int
    path: str = Field(description="Path of the job, which returns the complete result for 30 days")


class ImportFacts(JobFacts):
    model_config = _configure_example(
        status="succeeded",
        job_id=93,
        path="/jobs/93",
        source="file",
        dry_run=False,
        received=1200,
        added=1100,
        already=60,
        opted_out=20,
        invalid=15,
        duplicate=5,
        denied=0,
        updated=0,
    )

    source: str = Field(
        description="`file` for an uploaded file, or `members` for a request to members/add"
    )
    dry_run: bool = Field(description="Whether the import was a dry run, which changes nothing")
    received: int = Field(description="Number of received rows")
    added: int
    already: int
    opted_out: int
    invalid: int
    duplicate: int
    denied: int
    updated: int


class ExportFacts(JobFacts):
    model_config = _configure_example(
        status="succeeded", job_id=94, path="/jobs/94", kind="members", rows=1200
    )

    kind: str = Field(description="members or delivery")
    rows: int | None = Field(
        description="Number of rows in the file, or null if the export didn't succeed"
    )


class BulkFacts(JobFacts):
    model_config = _configure_example(
        status="succeeded",
        job_id=95,
        path="/jobs/95",
        action="undo_import",
        bulk_id=None,
        changed=1090,
        kept=10,
    )

    action: str = Field(
        description="Kind of the change. undo_import is the undo of an import. tag, untag, "
        "remove, set_type and email_off are bulk actions. undo_bulk is the undo "
        "of a bulk action."
    )
    bulk_id: int | None = Field(
        description="Id of the bulk action that ran or was undone. null for the undo of an import."
    )
    changed: int = Field(description="Number of changed members")
    kept: int = Field(
        description="Number of members that were not changed, because nothing had to change "
        "or because the members changed in the meantime"
    )


class AttachmentFacts(ShownData):
    model_config = _configure_example(hash_id="k3v09xq2m7ta")

    hash_id: str = Field(description="Id of the attachment, for GET /attachments/{hash_id}")


class FailedAttachmentFacts(AttachmentFacts):
    model_config = _configure_example(hash_id="k3v09xq2m7ta", code="attachment.unreadable")

    code: str | None = Field(description="Error code of the failure")


class OrderFacts(ShownData):
    model_config = _configure_example(
        before="pending", credit_amount=500.0, currency="USD", amount=5.0
    )

    before: str = Field(description="Status of the order before the event")
    credit_amount: float | None = Field(
        description="Credits of the order, or null if the order is deleted"
    )
    currency: str | None
    amount: float | None = Field(description="Price of the order, in its currency")


class BalanceFacts(ShownData):
    model_config = _configure_example(balance_credit=99.5, below=100.0)

    balance_credit: float = Field(description="Balance in credits after the charge")
    below: float = Field(description="Threshold in credits")


class CredentialFacts(ShownData):
    model_config = _configure_example(count=1)

    count: int = Field(
        description="Number of affected credentials. The subject is null if the event isn't "
        "about a single credential."
    )


class SenderFacts(ShownData):
    model_config = _configure_example(state="failing", reason="calls_rejected")

    state: str = Field(description="State of the sender after the event")
    reason: str | None = Field(
        description="Reason why the sender fails: `calls_rejected`, `topic_unsubscribed` or "
        "`no_reports`. In the event `sender.recovered`, the reason is null, because the sender "
        "works again."
    )


class MailingFacts(ShownData):
    model_config = _configure_example(mailing_id=94, rows=1200, hard_bounced=61, complained=2)

    mailing_id: int
    rows: int = Field(description="Number of recipients of the mailing")
    hard_bounced: int = Field(description="Number of members with a hard bounce")
    complained: int = Field(description="Number of members who complained")
