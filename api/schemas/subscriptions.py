"""The request and response bodies of the API endpoints for subscriptions and members."""

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from api.schemas.envelope import Body, Moment, Pagination, Schema, Timestamp, format_plain_moment
from api.schemas.fields import FieldValues, ShownFields, ShownTags, TagNames
from api.schemas.lists import Channel
from core.errors import DomainError
from models import Subscription, Tier, User
from services.accounts import email_addresses
from services.subscriptions.consent.evidence import ConsentEvidence
from services.subscriptions.consent.networks import MAX_COUNTED_PEOPLE
from services.subscriptions.member_attributes import AttributeChanges, AttributeFormatter
from services.subscriptions.members.changes import Via
from services.subscriptions.members.members import MemberEdit

_MOMENT_COLUMNS = ("paid_expiry", "joined_at", "created_at", "updated_at")
_EDITABLE_COLUMNS = ("name", "type", "paid_expiry")


def _normalise_address(value: str) -> str:
    try:
        return email_addresses.normalise_address(value)
    except DomainError as error:
        raise PydanticCustomError("email.invalid", "{reason}", {"reason": error.message}) from None


Address = Annotated[str, AfterValidator(_normalise_address)]


class Person(Schema):
    id: int
    name: str | None = Field(
        description="What the person calls themselves; to an owner, if they came by a login"
    )


class SubscriptionRecord(Schema):
    id: int
    user_id: int | None = Field(description="null where a trace id asks")
    list_id: int
    status: str = Field(description="pending, active, unsubscribed or removed", examples=["active"])
    type: str = Field(description="free, silver or gold", examples=["free"])
    paid_expiry: Timestamp | None = Field(examples=[None])
    email_enabled: bool
    name: str | None = Field(description="The list's own name for the member")
    email: str | None = Field(description="The list's own record of the member's address")
    source: str = Field(
        description="How they came: challenge, form, login, transfer, import, or owner for those "
        "whom the owner added one by one",
        examples=["import"],
    )
    fields: ShownFields | None = Field(
        default=None, description="By the keys of the owner's fields; null to all but the owner"
    )
    tags: ShownTags | None = Field(default=None, description="null to all but the owner")
    joined_at: Timestamp | None = Field(
        default=None,
        description="When they joined, as the source of an import said; otherwise created_at. null "
        "to all but the owner",
    )
    import_id: int | None = Field(
        default=None,
        description="The import that last made them active; null to all but the owner",
        examples=[None],
    )
    created_at: Timestamp
    updated_at: Timestamp
    user: Person | None = None
    list: Channel | None = None

    def masked(self) -> Self:
        """Return the record without the member's id, name and end of the paid tier.

        The e-mail address in the returned record is masked.
        """
        email = None if self.email is None else email_addresses.mask_address(self.email)
        hidden = {"user_id": None, "name": None, "paid_expiry": None}
        return self.model_copy(update={**hidden, "email": email})


def build_member_record(
    record: Subscription, person: User, attributes: AttributeFormatter, **others: Any
) -> SubscriptionRecord:
    user = Person(id=person.id, name=person.name if record.source == Via.LOGIN else None)
    return SubscriptionRecord.of_row(
        record, user=user, **attributes.format_record(record), **others
    )


# Optimization: large responses without pydantic (decision 17).
def build_member_item(row: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a ``SubscriptionRecord`` for ``build_plain_response``."""
    person = {"id": row["user_id"], "name": row.pop("user_name")}
    moments = {name: format_plain_moment(row[name]) for name in _MOMENT_COLUMNS}
    return {**row, **moments, "user": person, "list": None}


class MembersPagination(Pagination):
    total: int | None = Field(
        description="How many are meant; with a filter on the first page alone, and null where the "
        "list is too long to count them"
    )


class MembersPage(Schema):
    pagination: MembersPagination
    items: list[SubscriptionRecord]


class Opponent(Schema):
    list: Channel
    sub: SubscriptionRecord


class HistoryEntry(Schema):
    id: int | None = Field(description="null for the import that brought the member")
    action: str = Field(
        description="requested, subscribed, added, confirmed, unsubscribed, unsubscribing_undone, "
        "email_enabled, email_disabled, removed, edited, transferred_in, transferred_away, "
        "imported, import_undone, bulk_undone, lapsed, erased",
        examples=["confirmed"],
    )
    actor: str = Field(description="user, owner, import, operator or stranger", examples=["user"])
    actor_id: int | None = Field(examples=[4831920047116])
    via: str = Field(
        description="login, challenge, form, confirmation, trace, one-click, page, import, bulk or "
        "command",
        examples=["confirmation"],
    )
    status_before: str | None = Field(examples=["pending"])
    status_after: str | None = Field(examples=["active"])
    email_enabled_before: bool | None = Field(examples=[None])
    email_enabled_after: bool | None = Field(examples=[True])
    changed: list[str] | None = Field(
        description="What else changed, without the values: name, type, paid_expiry, email, tags, "
        "and fields.city for the field city",
        examples=[["tags", "fields.city"]],
    )
    reason: str | None = Field(
        default=None,
        description="Why they left or stopped the mail, where they said: too_many, other_topics, "
        "never_asked, elsewhere or other",
        examples=[None],
    )
    ip: str | None
    request_id: str | None
    created_at: Timestamp


class _SignUp(Body):
    email: Address = Field(examples=["reader@example.com"])
    name: str | None = Field(
        default=None,
        max_length=200,
        description="The list's own name for the person, on a new record",
        examples=["Ada Reader"],
    )
    # The challenge fields accept any text, because a form sends the fields even to a list without a
    # challenge.
    challenge_provider: str | None = Field(
        default=None, alias="challenge-provider", examples=["turnstile"]
    )
    challenge_token: str | None = Field(default=None, alias="challenge-token", examples=["0.aXbYc"])
    challenge_action: str | None = Field(
        default=None, alias="challenge-action", examples=["subscribe"]
    )


class NewSubscription(_SignUp):
    fields: FieldValues = Field(
        default_factory=dict,
        description="By the keys of fields that the owner made public",
        examples=[{"city": "Paris"}],
    )


class OwnSubmission(Body):
    fields: FieldValues = Field(
        default_factory=dict,
        description="By the keys of fields that the owner made public; what is not named stays",
        examples=[{"city": "Paris"}],
    )


class SignUpForm(_SignUp):
    """The fields of a plain HTML form; the widget of a challenge adds one of its own.

    An input named `fields.city` is the value of the owner's public field `city`.
    """

    redirect_url: str | None = Field(
        default=None,
        description="Where the browser goes afterwards, at an origin that the list or the operator "
        "allows; otherwise to a page of ours",
        examples=["https://www.example.com/thanks"],
    )


class EmailSetting(Body):
    enabled: bool = Field(examples=[False])


TierName = Annotated[Tier, Field(strict=False)]


class MemberValues(Body):
    name: str | None = Field(default=None, max_length=200, examples=["Ada Reader"])
    type: TierName = Field(
        default=Tier.FREE, description="free, silver or gold", examples=["silver"]
    )
    paid_expiry: Moment | None = Field(
        default=None,
        description="When the paid tier ends; null: it doesn't",
        examples=["2027-11-21T00:00:00Z"],
    )
    fields: FieldValues = Field(default_factory=dict)

    def edit(self) -> MemberEdit:
        """Return the changes of a member that the request contains."""
        values = self.model_dump(exclude_unset=True)
        columns = {name: values.pop(name) for name in _EDITABLE_COLUMNS if name in values}
        return MemberEdit(columns, AttributeChanges(**values))


class MemberUpsert(MemberValues):
    tags: TagNames | None = Field(
        default=None,
        description="All that the member is to have",
        examples=[["VIP", "Spring fair"]],
    )


class MemberChanges(MemberUpsert):
    add_tags: TagNames = Field(
        default_factory=list, description="Beside those that they have", examples=[["Patron"]]
    )
    remove_tags: TagNames = Field(default_factory=list, examples=[["Newcomer"]])


class MemberConsent(Schema):
    """An act by which a member agreed to get a list, or a claim of others about one."""

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
    confirmed: bool = Field(
        description="Whether Pressroom saw that it was the address's person. A form shows that "
        "somebody named the address; it is confirmed by a mailed link, then or later",
        examples=[True],
    )
    others_of_network: int | None = Field(
        description="How many other people came onto this list from the network of `ip`, its /24 "
        f"or /48: {MAX_COUNTED_PEOPLE} at most. null for a claim",
        examples=[0],
    )
    list_id: int = Field(description="Where the person agreed: another list after a transfer")
    import_id: int | None = Field(examples=[None])

    @classmethod
    def of(cls, evidence: ConsentEvidence, others: Mapping[str, int]) -> Self:
        """Build the record of a consent.

        ``others``: the result of ``count_people_by_network``.
        """
        values = evidence._asdict()
        others_of_network = None
        if evidence.ip is not None and not evidence.claimed_by:
            others_of_network = others.get(evidence.ip)
        return cls(at=values.pop("occurred_at"), others_of_network=others_of_network, **values)
