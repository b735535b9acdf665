"""What the ``data`` of an event holds when it is shown, for each kind of event.

The row keeps ids, counts and our own words. ``email`` and ``name`` are looked up when the event is
read, and are null once the person was erased.
"""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


def _example(**values: Any) -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": [values]})


class ShownData(BaseModel):
    """What an event says beside its type, its list and its subject."""

    @classmethod
    def example(cls) -> dict[str, Any]:
        found: dict[str, Any] = cls.model_json_schema()["examples"][0]
        return found


_MEMBER = {
    "user_id": 8123456789012345,
    "action": "requested",
    "via": "challenge",
    "status": "pending",
    "email_enabled": True,
    "changed": None,
    "email": "ada@example.com",
    "name": "Ada",
}


class MemberFacts(ShownData):
    model_config = _example(**_MEMBER)

    user_id: int = Field(description="The person")
    action: str = Field(description="As the member's history has it, such as requested or edited")
    via: str = Field(description="How it came: login, challenge, trace, one-click, page, command …")
    status: str = Field(description="Of the subscription after the event")
    email_enabled: bool = Field(description="Whether the member gets mail after the event")
    changed: list[str] | None = Field(
        description="What else changed: name, type, paid_expiry, email, tags or fields"
    )
    email: str | None = Field(
        description="The list's address of the member now; null once the person was erased"
    )
    name: str | None = Field(
        description="The list's name of the member now; null once the person was erased"
    )


class TransferFacts(MemberFacts):
    model_config = _example(
        **(_MEMBER | {"action": "transferred_in", "via": "login", "status": "active"}),
        from_list_id=4711,
        to_list_id=4712,
    )

    from_list_id: int
    to_list_id: int


class JobFacts(ShownData):
    status: str = Field(description="succeeded, failed or cancelled")
    job_id: int
    path: str = Field(description="Answers the whole result for 30 days: GET /jobs/{job_id}")


class ImportFacts(JobFacts):
    model_config = _example(
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

    source: str = Field(description="file, or members for a call of members/add")
    dry_run: bool = Field(description="Whether it changed nothing")
    received: int = Field(description="How many rows came")
    added: int
    already: int
    opted_out: int
    invalid: int
    duplicate: int
    denied: int
    updated: int


class ExportFacts(JobFacts):
    model_config = _example(
        status="succeeded", job_id=94, path="/jobs/94", kind="members", rows=1200
    )

    kind: str = Field(description="members or delivery")
    rows: int | None = Field(description="null unless it succeeded")


class BulkFacts(JobFacts):
    model_config = _example(
        status="succeeded",
        job_id=95,
        path="/jobs/95",
        action="undo_import",
        bulk_id=None,
        changed=1090,
        kept=10,
    )

    action: str = Field(
        description="undo_import: an import was taken back. tag, untag, remove, set_type or "
        "email_off: it was done to all members that fit a filter. undo_bulk: that was taken back"
    )
    bulk_id: int | None = Field(description="Of an act on members that fit a filter, and its undo")
    changed: int = Field(description="How many members it changed")
    kept: int = Field(
        description="How many it left alone: they were so already, or had changed meanwhile"
    )


class AttachmentFacts(ShownData):
    model_config = _example(hash_id="k3v09xq2m7ta")

    hash_id: str = Field(description="GET /attachments/{hash_id} answers the record")


class FailedAttachmentFacts(AttachmentFacts):
    model_config = _example(hash_id="k3v09xq2m7ta", code="attachment.unreadable")

    code: str | None = Field(description="Why, as the codes of errors say")


class OrderFacts(ShownData):
    model_config = _example(before="pending", credit_amount=500.0, currency="USD", amount=5.0)

    before: str = Field(description="The order's status before the event")
    credit_amount: float | None = Field(description="What the order buys; null if it is gone")
    currency: str | None
    amount: float | None = Field(description="What the order costs, in the currency")


class BalanceFacts(ShownData):
    model_config = _example(balance_credit=99.5, below=100.0)

    balance_credit: float = Field(description="The balance after the charge")
    below: float = Field(description="The threshold below which it fell")


class CredentialFacts(ShownData):
    model_config = _example(count=1)

    count: int = Field(description="How many it were; the subject is null if there is none by name")
