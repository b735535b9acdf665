from typing import Self

from pydantic import Field

from api.schemas.envelope import Schema, Timestamp
from services.mailing.consent.member_consent import ConsentShown


class MemberConsent(Schema):
    """One act by which a member agreed to get a list, or what others claim of one."""

    at: Timestamp = Field(examples=["2026-11-21T09:30:00.000000Z"])
    how: str = Field(
        description="form, confirmation, login, link (by which the person came back), owner, "
        "import or transfer",
        examples=["form"],
    )
    ip: str | None = Field(description="After 90 days its network alone", examples=["192.0.2.7"])
    url: str | None = Field(
        description="The page with the form, without its query",
        examples=["https://www.example.com/tea"],
    )
    browser: str | None = Field(examples=["Firefox on Linux"])
    wording: str | None = Field(
        description="What the person agreed to",
        examples=["I want The Daily Demo by e-mail. I can leave at any time."],
    )
    wording_version: int | None = Field(
        description="Which of the list's wordings that is", examples=[1]
    )
    claimed_by: str | None = Field(
        description="null for what Pressroom saw itself; otherwise who says so: owner, or the "
        "product whose file it is",
        examples=[None],
    )
    list_id: int = Field(description="Where the person agreed: another list after a transfer")
    import_id: int | None = Field(examples=[None])

    @classmethod
    def of(cls, shown: ConsentShown) -> Self:
        values = shown._asdict()
        return cls(at=values.pop("occurred_at"), **values)
