"""The request and response bodies of the API endpoints for subscriptions and members."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo
from pydantic_core import PydanticCustomError

from api.schemas.engagement import EngagementChoice, MemberEngagement
from api.schemas.envelope import (
    Body,
    ChangesBody,
    Moment,
    Pagination,
    Schema,
    Timestamp,
    format_plain_moment,
)
from api.schemas.fields import FieldValues, ShownFields, ShownTags, TagNames
from api.schemas.lists import Channel
from core.errors import DomainError
from models import Subscription, SubscriptionEvent, Tier, User
from services.accounts import email_addresses
from services.subscriptions.consent.evidence import ConsentEvidence
from services.subscriptions.consent.networks import MAX_COUNTED_PEOPLE
from services.subscriptions.member_attributes import AttributeChanges, AttributeFormatter
from services.subscriptions.members import departures, email_offs
from services.subscriptions.members.changes import Via
from services.subscriptions.members.departures import LeftReason
from services.subscriptions.members.email_offs import EmailOffReason
from services.subscriptions.members.engagement_views import EngagementView
from services.subscriptions.members.members import MemberEdit
from services.subscriptions.sign_up_origins import clean_value, fill_origin

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
        description="Name that the person chose. Owners see the name only if the person "
        "subscribed with a login."
    )


class EmailOff(Schema):
    """The reason why a member gets no mail."""

    reason: EmailOffReason = Field(
        description="bounced after a hard bounce, soft_bounced after several soft bounces, person "
        "if the member turned mail off, owner for all other reasons",
        examples=["bounced"],
    )
    status: str | None = Field(
        description="Enhanced status code of the bounce (RFC 3463)", examples=["5.1.1"]
    )
    at: Timestamp | None = Field(description="Time when mail was turned off, or null if unknown")


class SignUpOrigin(Schema):
    """The campaign, website or page from which a person came to the sign-up form."""

    utm_source: str | None = Field(default=None, examples=["spring-fair"])
    utm_medium: str | None = Field(default=None, examples=["poster"])
    utm_campaign: str | None = Field(default=None, examples=["tea-2026"])
    utm_term: str | None = Field(default=None, examples=[None])
    utm_content: str | None = Field(default=None, examples=[None])
    referrer: str | None = Field(
        default=None,
        description="Host of the page with the link or form",
        examples=["www.example.com"],
    )
    landing: str | None = Field(
        default=None, description="Path of the page with the form", examples=["/tea/join"]
    )


class SubscriptionRecord(Schema):
    id: int
    user_id: int | None = Field(
        description="Id of the member, or null if the request used a trace id"
    )
    list_id: int
    status: str = Field(description="pending, active, unsubscribed or removed", examples=["active"])
    type: str = Field(
        description="Tier of the member, which is free, silver or gold", examples=["free"]
    )
    paid_expiry: Timestamp | None = Field(examples=[None])
    email_enabled: bool
    email_off: EmailOff | None = Field(
        default=None,
        description="Why the member gets no mail, or null if mail is on",
        examples=[None],
    )
    name: str | None = Field(description="Name of the member on this list")
    email: str | None = Field(description="Address of the member on this list")
    source: str = Field(
        description="Origin of the subscription, which is challenge, form, login, transfer, "
        "import or owner. owner means that the owner added the member "
        "individually.",
        examples=["import"],
    )
    fields: ShownFields | None = Field(
        default=None,
        description="Values by the keys of the owner's fields. Only the owner sees these values.",
    )
    tags: ShownTags | None = Field(
        default=None, description="Tags of the member. Only the owner sees the tags."
    )
    joined_at: Timestamp | None = Field(
        default=None,
        description="Time when the member joined, as stated by an import. Otherwise the same "
        "as created_at. Only the owner sees this time.",
    )
    import_id: int | None = Field(
        default=None,
        description="Id of the import that last activated the member. Only the owner sees this id.",
        examples=[None],
    )
    origin: SignUpOrigin | None = Field(
        default=None,
        description="Where the first sign-up came from, or null if unknown. Only the owner sees "
        "the origin.",
    )
    engagement: MemberEngagement | None = Field(
        default=None,
        description="What the list recorded about opens and clicks, or null if it records nothing "
        "about the member",
    )
    engagement_choice: EngagementChoice | None = Field(
        default=None, description="null if the member hasn't answered"
    )
    created_at: Timestamp
    updated_at: Timestamp
    user: Person | None = None
    list: Channel | None = None

    @classmethod
    def of(
        cls,
        record: Subscription,
        email_off: email_offs.EmailOff | None,
        view: EngagementView | None,
        **others: Any,
    ) -> Self:
        """Build the record. ``view``: ``None`` hides the engagement and the answer."""
        shown_email_off = None if email_off is None else EmailOff(**asdict(email_off))
        shown_view = (view or EngagementView())._asdict()
        return cls.of_row(record, email_off=shown_email_off, **shown_view, **others)

    def masked(self) -> Self:
        """Return the record without the member's id, name and end of the paid tier.

        The e-mail address in the returned record is masked.
        """
        email = None if self.email is None else email_addresses.mask_address(self.email)
        hidden = {"user_id": None, "name": None, "paid_expiry": None}
        return self.model_copy(update={**hidden, "email": email})


def build_member_record(
    record: Subscription,
    person: User,
    attributes: AttributeFormatter,
    email_off: email_offs.EmailOff | None,
    view: EngagementView,
    **others: Any,
) -> SubscriptionRecord:
    user = Person(id=person.id, name=person.name if record.source == Via.LOGIN else None)
    return SubscriptionRecord.of(
        record, email_off, view, user=user, **attributes.format_record(record), **others
    )


# Optimization: large responses without pydantic (decision 17).
def build_member_item(row: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a ``SubscriptionRecord`` for ``build_plain_response``."""
    person = {"id": row["user_id"], "name": row.pop("user_name")}
    moments = {name: format_plain_moment(row[name]) for name in _MOMENT_COLUMNS}
    email_off = row["email_off"] and {
        "reason": row["email_off"].reason,
        "status": row["email_off"].status,
        "at": format_plain_moment(row["email_off"].at),
    }
    return {
        **row,
        **moments,
        "email_off": email_off,
        "origin": fill_origin(row["origin"]),
        "user": person,
        "list": None,
    }


class MembersPagination(Pagination):
    total: int | None = Field(
        description="Total number of matching members. With a filter, only the first page "
        "contains the total. null if counting takes too long."
    )


class MembersPage(Schema):
    pagination: MembersPagination
    items: list[SubscriptionRecord]


class Opponent(Schema):
    list: Channel
    sub: SubscriptionRecord


class HistoryEntry(Schema):
    id: int | None = Field(
        description="Id of the entry. null for the import that added the member."
    )
    action: str = Field(
        description="requested, subscribed, added, confirmed, unsubscribed, "
        "unsubscribing_undone, email_enabled, email_disabled, removed, edited, "
        "transferred_in, transferred_away, imported, import_undone, bulk_undone, "
        "lapsed, bounced, soft_bounced, erased, engagement_allowed, engagement_refused",
        examples=["confirmed"],
    )
    actor: str = Field(
        description="Who made the change: user, owner, import, operator, stranger or sender",
        examples=["user"],
    )
    actor_id: int | None = Field(examples=[4831920047116])
    via: str = Field(
        description="How the change was made: login, challenge, form, confirmation, trace, "
        "one-click, page, import, bulk, command or sender",
        examples=["confirmation"],
    )
    status_before: str | None = Field(examples=["pending"])
    status_after: str | None = Field(examples=["active"])
    email_enabled_before: bool | None = Field(examples=[None])
    email_enabled_after: bool | None = Field(examples=[True])
    changed: list[str] | None = Field(
        description="Names of other changed values: name, type, paid_expiry, email and tags, "
        "or fields.city for the field city",
        examples=[["tags", "fields.city"]],
    )
    reason: str | None = Field(
        default=None,
        description="Reason for leaving or turning off the mail, if the person gave one: "
        "too_many, other_topics, never_asked, elsewhere or other",
        examples=[None],
    )
    left_reason: LeftReason | None = Field(
        default=None,
        description="Why the member left. The value is `bounced` if a bounce turned the member's "
        "mail off, and null for other changes.",
        examples=[None],
    )
    mailing_id: int | None = Field(
        default=None,
        description="Id of the mailing whose link or report caused the change. null if there is "
        "none, or if the mailing is unknown.",
        examples=[None],
    )
    ip: str | None
    request_id: str | None
    created_at: Timestamp

    @classmethod
    def of_event(cls, event: SubscriptionEvent) -> Self:
        return cls.of_row(
            event,
            reason=event.reason,
            left_reason=departures.get_left_reason(event),
            mailing_id=event.mailing_id,
        )


def _clean_origin_value(value: object, info: ValidationInfo) -> str | None:
    return clean_value(str(info.field_name), value)


def _read_agreement(value: object) -> bool:
    """Accept the value of a checkbox. Any other value means no."""
    return value is True or value == "yes"


# A sign-up must not fail because of an invalid origin, so invalid values become ``None``.
_CleanedValue = Annotated[str | None, BeforeValidator(_clean_origin_value)]


class _SignUp(Body):
    email: Address = Field(examples=["reader@example.com"])
    name: str | None = Field(
        default=None,
        max_length=200,
        description="Name of the person on this list, used only for a new subscription",
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

    engagement: Annotated[bool, BeforeValidator(_read_agreement)] = Field(
        default=False,
        description="Whether the person allows the list to record opens and clicks. Ignored unless "
        "the list's `engagement` is `consent`.",
        examples=[False],
    )
    utm_source: _CleanedValue = Field(
        default=None,
        description="Source of the campaign that led to the sign-up. If the value of a field from "
        "`utm_source` to `landing` is invalid, Pressroom ignores the value.",
        examples=["spring-fair"],
    )
    utm_medium: _CleanedValue = Field(default=None, examples=["poster"])
    utm_campaign: _CleanedValue = Field(default=None, examples=["tea-2026"])
    utm_term: _CleanedValue = Field(default=None, examples=["green tea"])
    utm_content: _CleanedValue = Field(default=None, examples=["red-button"])
    referrer: _CleanedValue = Field(
        default=None,
        description="Host of the page that linked to the form. If the request contains "
        "neither `referrer` nor `landing`, Pressroom takes both from the `Referer` header.",
        examples=["www.example.com"],
    )
    landing: _CleanedValue = Field(
        default=None, description="Path of the page with the form", examples=["/tea/join"]
    )


class NewSubscription(_SignUp):
    fields: FieldValues = Field(
        default_factory=dict,
        description="Values by the keys of the owner's public fields",
        examples=[{"city": "Paris"}],
    )


class OwnSubmission(Body):
    fields: FieldValues = Field(
        default_factory=dict,
        description="Values by the keys of the owner's public fields. Fields that the request "
        "omits don't change.",
        examples=[{"city": "Paris"}],
    )


class SignUpForm(_SignUp):
    """The fields of a plain HTML form. A CAPTCHA widget adds one more field.

    An input named `fields.city` sets the public field `city`.
    """

    redirect_url: str | None = Field(
        default=None,
        description="URL to which the browser is redirected. The list or the operator must "
        "allow the origin. Without this field, a Pressroom page shows the result.",
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
        description="Time when the paid tier expires, or null if the tier never expires",
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
        description="Complete list of tags, which replaces the current tags",
        examples=[["VIP", "Spring fair"]],
    )


class MemberChanges(MemberUpsert, ChangesBody):
    add_tags: TagNames = Field(
        default_factory=list, description="Tags to add to the current tags", examples=[["Patron"]]
    )
    remove_tags: TagNames = Field(default_factory=list, examples=[["Newcomer"]])


class MemberConsent(Schema):
    """A consent to receive a list, either recorded by Pressroom or claimed by someone else."""

    at: Timestamp = Field(examples=["2026-11-21T09:30:00.000000Z"])
    how: str = Field(
        description="How the person consented: form, confirmation, login, link, "
        "owner, import or transfer. link means that the person returned with a "
        "link in an e-mail.",
        examples=["form"],
    )
    ip: str | None = Field(
        description="IP address. After 90 days, only its network is stored.", examples=["192.0.2.7"]
    )
    url: str | None = Field(
        description="URL of the page with the form, without the query",
        examples=["https://www.example.com/tea"],
    )
    browser: str | None = Field(examples=["Firefox on Linux"])
    wording: str | None = Field(
        description="Consent text that the person accepted",
        examples=["I want The Daily Demo by e-mail. I can leave at any time."],
    )
    wording_version: int | None = Field(description="Version of the consent text", examples=[1])
    claimed_by: str | None = Field(
        description="Who claims the consent, either owner or the product that the imported "
        "file comes from. null if Pressroom recorded the consent.",
        examples=[None],
    )
    confirmed: bool = Field(
        description="Whether Pressroom verified that the person owns the address. A form only "
        "shows that someone entered the address. The link in a confirmation "
        "e-mail verifies the address.",
        examples=[True],
    )
    others_of_network: int | None = Field(
        description="Number of other people who joined this list from the same network as `ip`, "
        f"which is its /24 or /48, at most {MAX_COUNTED_PEOPLE}. null for a claim.",
        examples=[0],
    )
    list_id: int = Field(
        description="Id of the list to which the person consented. After a transfer, this is "
        "another list."
    )
    import_id: int | None = Field(examples=[None])
    origin: SignUpOrigin | None = Field(
        default=None, description="Where the sign-up came from, or null if unknown"
    )
    engagement: bool = Field(
        default=False,
        description="Whether the person allowed the list to record opens and clicks. Otherwise, "
        "the person agreed to get the list's mail.",
    )

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
