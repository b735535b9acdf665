"""The request and response bodies of the API endpoints for lists and deny lists."""

from collections.abc import Sequence
from datetime import date
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import Field

from api.schemas.envelope import AtMost, Body, ChangesBody, Schema, Timestamp, Url
from models import (
    DEFAULT_SOFT_BOUNCE_LIMIT,
    MAX_SOFT_BOUNCE_LIMIT,
    EngagementMode,
    MailingList,
)
from services.subscriptions.branding import (
    MAX_ENGAGEMENT_WORDING_CHARACTERS,
    MAX_MAIL_TEXT_CHARACTERS,
    MAX_PAGE_TEXT_CHARACTERS,
    MAX_SENDER_CHARACTERS,
)
from services.subscriptions.consent.wordings import MAX_WORDING_CHARACTERS
from services.subscriptions.daily_figures import DayRange, FiguresBy, MemberFigures, SignUps
from services.subscriptions.deny_lists import MAX_ENTRIES
from services.subscriptions.fields import MAX_FIELDS
from services.subscriptions.members.departures import StatedReason

ChallengeProvider = Literal["turnstile", "hcaptcha", "recaptcha"]
# Turn off Pydantic's strict mode, because strict mode accepts only enum members, but a JSON request
# contains strings.
ModeName = Annotated[EngagementMode, Field(strict=False)]
_IMAGE_DESCRIPTION = "An absolute http or https URL"


# The service allows only 10 origins, and has a separate error code for too many origins.
_MAX_ORIGINS = 100
_EXAMPLE_ADDRESSES = ["spam@example.net"]
_EXAMPLE_DOMAINS = ["example.org", "*.example.org"]


class Channel(Schema):
    id: int
    slug: str = Field(examples=["the-daily-demo"])
    title: str = Field(examples=["The Daily Demo"])
    tagline: str | None = Field(examples=["One thing worth knowing, each morning"])
    description: str | None = Field(examples=["Short letters about how things are made."])
    avatar_image_url: Url | None = Field(examples=["https://www.example.com/avatar.png"])
    favicon_image_url: Url | None = Field(examples=["https://www.example.com/favicon.ico"])
    user_id: int = Field(description="User id of the list's owner")
    subscriber_count: int = Field(description="Number of active subscribers", examples=[4930])
    email_channel_enabled: bool = Field(
        description="Whether programs that send newsletters receive the members of the list",
        examples=[True],
    )
    challenge_enabled: bool = Field(description="Whether the public sign-up requires a CAPTCHA")
    challenge_provider: ChallengeProvider | None
    challenge_site_key: str | None = Field(
        description="Site key for the widget of the CAPTCHA provider",
        examples=["0x4AAAAAAADnPIDROrmt1Wwj"],
    )
    confirm_required: bool = Field(
        description="Whether new subscribers must confirm with the link in an e-mail"
    )
    redirect_origins: list[str] = Field(
        description="Origins of websites to which a sign-up form can redirect",
        examples=[["https://www.example.com"]],
    )
    confirmed_redirect: Url | None = Field(
        description="URL to which readers are redirected after they confirm",
        examples=["https://www.example.com/welcome"],
    )
    asked_fields: list[str] | None = Field(
        description="Keys of the public fields on the sign-up form, or null for all public fields",
        examples=[None],
    )
    required_fields: list[str] = Field(
        description="Keys of the fields that are required for a sign-up", examples=[[]]
    )
    consent_wording: str | None = Field(
        description="Consent text shown at sign-up",
        examples=["I want The Daily Demo by e-mail. I can leave at any time."],
    )
    consent_wording_version: int | None = Field(
        description="Version of the consent text", examples=[1]
    )
    colour: str | None = Field(
        description="Accent colour of the list's pages and e-mails", examples=["#1d4ed8"]
    )
    logo_hash_id: str | None = Field(
        description="Id of the logo on the list's pages", examples=["k3v09xq2m7ta"]
    )
    sender_name: str | None = Field(
        description="Sender name of the list's e-mails", examples=["The Demo team"]
    )
    sign_up_text: str | None = Field(
        description="Introduction on the sign-up page",
        examples=["One letter each morning, in two minutes."],
    )
    thanks_text: str | None = Field(
        description="Text on the page after the confirmation, and in the welcome e-mail. Lists "
        "without `confirm_required` also show the text after the sign-up form.",
        examples=["The next letter comes tomorrow at six."],
    )
    confirmation_text: str | None = Field(
        description="Text from the owner in the confirmation e-mail",
        examples=["Welcome to The Daily Demo!"],
    )
    soft_bounce_limit: int = Field(
        description="If this many consecutive mailings to a member bounce softly, Pressroom turns "
        "the member's mail off. If the limit is 0, soft bounces never turn mail off.",
        examples=[5],
    )
    engagement: EngagementMode = Field(
        description="Whose opens and clicks the list records: `off` for nobody, `consent` for "
        "members who said yes, `all` for all members except those who said no",
        examples=["off"],
    )
    engagement_wording: str | None = Field(
        description="Question whether the list may record opens and clicks. If it is null, pages "
        "show a default text in the reader's language.",
        examples=[None],
    )
    created_at: Timestamp
    updated_at: Timestamp

    @classmethod
    def of(
        cls,
        mailing_list: MailingList,
        subscribers: int,
        site_key: str | None,
        wording: str | None,
        fields: tuple[list[str] | None, list[str]],
    ) -> Self:
        asked_fields, required_fields = fields
        return cls.of_row(
            mailing_list,
            subscriber_count=subscribers,
            challenge_site_key=site_key,
            consent_wording=wording,
            asked_fields=asked_fields,
            required_fields=required_fields,
        )


FieldKeys = Annotated[list[str], AtMost(MAX_FIELDS)]


class ListFields(Body):
    tagline: str | None = Field(
        default=None, max_length=500, examples=["One thing worth knowing, each morning"]
    )
    description: str | None = Field(default=None, max_length=5000)
    avatar_image_url: Url | None = Field(default=None, description=_IMAGE_DESCRIPTION)
    favicon_image_url: Url | None = Field(default=None, description=_IMAGE_DESCRIPTION)
    email_channel_enabled: bool = True
    challenge_enabled: bool = False
    challenge_provider: ChallengeProvider | None = None
    confirm_required: bool = Field(
        default=True,
        description="Whether new subscribers must confirm with the link in an e-mail. If this "
        "is off, anyone can subscribe any address.",
    )
    redirect_origins: Annotated[list[str], AtMost(_MAX_ORIGINS)] = Field(
        default_factory=list,
        description="At most 10 origins of websites to which a sign-up form can redirect",
        examples=[["https://www.example.com"]],
    )
    confirmed_redirect: Url | None = Field(
        default=None,
        description="URL to which readers are redirected after they confirm, or null for a page of "
        "Pressroom. The list or the operator must allow the origin.",
        examples=["https://www.example.com/welcome"],
    )
    asked_fields: FieldKeys | None = Field(
        default=None,
        description="Keys of your public fields on the sign-up form, or null for all public fields",
        examples=[["city"]],
    )
    required_fields: FieldKeys = Field(
        default_factory=list,
        description="Keys of the asked fields that are required for a sign-up",
        examples=[["city"]],
    )
    consent_wording: str | None = Field(
        default=None,
        max_length=MAX_WORDING_CHARACTERS,
        description="Consent text shown at sign-up, or null for no text. Earlier versions are "
        "kept.",
        examples=["I want The Daily Demo by e-mail. I can leave at any time."],
    )

    colour: str | None = Field(
        default=None,
        description="Accent colour as #rrggbb, with a contrast of at least 4.5 to the pages' "
        "background. Dark mode uses a lighter shade.",
        examples=["#1d4ed8"],
    )
    logo_hash_id: str | None = Field(
        default=None,
        description="Id of one of your unencrypted attachments",
        examples=["k3v09xq2m7ta"],
    )
    sender_name: str | None = Field(
        default=None,
        description=f"At most {MAX_SENDER_CHARACTERS} characters. E-mails are sent from '<name> "
        "via <installation>', with the installation's address.",
        examples=["The Demo team"],
    )
    sign_up_text: str | None = Field(
        default=None,
        description=f"Plain text of at most {MAX_PAGE_TEXT_CHARACTERS} characters, without links",
        examples=["One letter each morning, in two minutes."],
    )
    thanks_text: str | None = Field(
        default=None,
        description=f"Plain text of at most {MAX_PAGE_TEXT_CHARACTERS} characters, without links",
        examples=["The next letter comes tomorrow at six."],
    )
    confirmation_text: str | None = Field(
        default=None,
        description=f"Plain text of at most {MAX_MAIL_TEXT_CHARACTERS} characters, without links",
        examples=["Welcome to The Daily Demo!"],
    )
    soft_bounce_limit: int = Field(
        default=DEFAULT_SOFT_BOUNCE_LIMIT,
        ge=0,
        le=MAX_SOFT_BOUNCE_LIMIT,
        description="If this many consecutive mailings to a member bounce softly, Pressroom turns "
        "the member's mail off. At least 7 days must lie between the first and the last of these "
        "mailings. If the limit is 0, soft bounces never turn mail off.",
        examples=[5],
    )
    engagement: ModeName = Field(
        default=EngagementMode.OFF,
        description="Whose opens and clicks the list records: `off` for nobody, `consent` for "
        "members who said yes, `all` for all members except those who said no. Within an hour "
        "after a change, Pressroom deletes all counts that the new mode doesn't allow.",
        examples=["consent"],
    )
    engagement_wording: str | None = Field(
        default=None,
        description="Question whether the list may record opens and clicks, as plain text of at "
        f"most {MAX_ENGAGEMENT_WORDING_CHARACTERS} characters. If it is null, pages show a default "
        "text in the reader's language.",
        examples=["May we count which letters you open? It helps us to write better ones."],
    )


class NewList(ListFields):
    title: str = Field(
        description="Title of the list, 1 to 200 characters", examples=["The Daily Demo"]
    )
    slug: str = Field(
        description="1 to 80 characters from a-z, 0-9 and '-', not only digits",
        examples=["the-daily-demo"],
    )


class ListChanges(ListFields, ChangesBody):
    title: str = Field(
        default="",
        description="Title of the list, 1 to 200 characters",
        examples=["The Daily Demo"],
    )
    slug: str = Field(
        default="", description="1 to 80 characters from a-z, 0-9 and '-', not only digits"
    )


class EmbeddedForm(Schema):
    """A list's sign-up form for other websites."""

    html: str = Field(
        description="HTML to paste unchanged into a page. Contains no frame and no style, and "
        "only the script of the CAPTCHA.",
        examples=['<form method="post" action="https://pressroom.example.com/subscriptions/4711">'],
    )
    action: str = Field(
        description="URL to which the form is sent",
        examples=["https://pressroom.example.com/subscriptions/4711"],
    )
    page_url: str = Field(
        description="URL of the list's own sign-up page",
        examples=["https://pressroom.example.com/s/the-daily-demo"],
    )


class PreviewPart(StrEnum):
    SIGN_UP = "sign_up"
    THANKS = "thanks"
    CONFIRMATION_MAIL = "confirmation_mail"


class ListPreview(Schema):
    """A page or an e-mail as readers see it."""

    html: str = Field(examples=["<!doctype html>"])
    subject: str | None = Field(
        default=None, description="Subject of the e-mail", examples=["Confirm: “The Daily Demo”"]
    )
    text: str | None = Field(
        default=None, description="The e-mail as plain text", examples=["Please confirm"]
    )
    sender_name: str | None = Field(
        default=None,
        description="Sender name before 'via' and the installation's name. null if the "
        "sender is only the installation.",
        examples=["The Demo team"],
    )


class FiguresRow(Schema):
    key: str = Field(
        description="The day, source, tier, campaign value, website, page or reason that the row "
        "counts. Only the 100 most frequent campaign values, websites and pages have their own "
        "row. The row `other` counts the members of all remaining ones. The row with an empty key "
        "counts members without a campaign value, website or page.",
        examples=["2026-11-20"],
    )
    seen: int | None = Field(
        default=None,
        description="Number of views of the sign-up page. The number may be too low. null unless "
        "the statistics are by day.",
        examples=[410],
    )
    asked: int = Field(
        default=0,
        description="Number of sign-ups that required a confirmation, counted under the member's "
        "current source, tier or origin",
        examples=[40],
    )
    confirmed: int = Field(default=0, description="Number of confirmed sign-ups", examples=[31])
    joined: int = Field(
        description="Number of times that a person became an active member", examples=[31]
    )
    left: int = Field(
        description="Number of times that a person stopped being an active member, for any reason",
        examples=[4],
    )
    net: int = Field(description="joined minus left", examples=[27])
    stated: dict[str, int] | None = Field(
        default=None,
        description="In the row unsubscribed of statistics by reason, how many people chose each "
        f"reason when they unsubscribed: {', '.join(StatedReason)}. null in all other rows.",
        examples=[None],
    )


class ListFigures(Schema):
    by: FiguresBy
    first_day: date = Field(
        description="First day of the statistics, in UTC", examples=["2026-11-20"]
    )
    last_day: date = Field(examples=["2026-11-20"])
    rows: list[FiguresRow] = Field(
        description="One row per day in order, or one row per source, tier, campaign value, "
        "website, page or reason with changes"
    )
    asked: int = Field(
        description="Number of requests for confirmation that were sent in this period",
        examples=[120],
    )
    confirmed: int = Field(description="Number of confirmations in this period", examples=[96])

    @classmethod
    def of(
        cls, by: FiguresBy, days: DayRange, figures: Sequence[MemberFigures], sign_ups: SignUps
    ) -> Self:
        rows = [FiguresRow.model_validate(row) for row in figures]
        return cls(by=by, first_day=days.first, last_day=days.last, rows=rows, **sign_ups._asdict())


Entries = Annotated[list[str], AtMost(MAX_ENTRIES)]


class DenyListRecord(Schema):
    addresses: list[str] = Field(examples=[_EXAMPLE_ADDRESSES])
    domains: list[str] = Field(
        description="Denied domains. *.example.org denies all subdomains of example.org.",
        examples=[_EXAMPLE_DOMAINS],
    )
    erased: int = Field(
        description="Number of denied addresses of erased people. These addresses can't be "
        "listed, because only their hashes are stored.",
        examples=[0],
    )


class NewDenyList(Body):
    addresses: Entries = Field(examples=[_EXAMPLE_ADDRESSES])
    domains: Entries = Field(
        description="Denied domains. *.example.org denies all subdomains of example.org.",
        examples=[_EXAMPLE_DOMAINS],
    )


class DenyListChanges(ChangesBody):
    add_addresses: Entries = Field(default_factory=list, examples=[_EXAMPLE_ADDRESSES])
    add_domains: Entries = Field(default_factory=list, examples=[_EXAMPLE_DOMAINS])
    remove_addresses: Entries = Field(default_factory=list, examples=[["mistaken@example.com"]])
    remove_domains: Entries = Field(default_factory=list, examples=[["example.com"]])
