"""The request and response bodies of the API endpoints for lists and deny lists."""

from collections.abc import Sequence
from datetime import date
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import Field

from api.schemas.envelope import AtMost, Body, Schema, Timestamp, Url
from models import MailingList
from services.subscriptions.branding import (
    MAX_MAIL_TEXT_CHARACTERS,
    MAX_PAGE_TEXT_CHARACTERS,
    MAX_SENDER_CHARACTERS,
)
from services.subscriptions.consent.wordings import MAX_WORDING_CHARACTERS
from services.subscriptions.daily_figures import DayRange, FiguresBy, MemberFigures, SignUps
from services.subscriptions.deny_lists import MAX_ENTRIES
from services.subscriptions.fields import MAX_FIELDS

ChallengeProvider = Literal["turnstile", "hcaptcha", "recaptcha"]
_IMAGE_DESCRIPTION = "An absolute http or https address"


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
    user_id: int = Field(description="Its owner")
    subscriber_count: int = Field(description="Active subscribers", examples=[4930])
    email_channel_enabled: bool = Field(
        description="Whether apps that send mail get its members", examples=[True]
    )
    challenge_enabled: bool = Field(description="Whether strangers subscribe with a challenge")
    challenge_provider: ChallengeProvider | None
    challenge_site_key: str | None = Field(
        description="For the provider's widget in a page", examples=["0x4AAAAAAADnPIDROrmt1Wwj"]
    )
    confirm_required: bool = Field(description="Whether strangers confirm by a mailed link")
    redirect_origins: list[str] = Field(
        description="Where a sign-up form may lead back to", examples=[["https://www.example.com"]]
    )
    asked_fields: list[str] | None = Field(
        description="The public fields that its sign-up form asks for, by their keys; null: all",
        examples=[None],
    )
    required_fields: list[str] = Field(
        description="The fields without which nobody signs up", examples=[[]]
    )
    consent_wording: str | None = Field(
        description="What people agree to who subscribe",
        examples=["I want The Daily Demo by e-mail. I can leave at any time."],
    )
    consent_wording_version: int | None = Field(
        description="Which of its wordings that is", examples=[1]
    )
    colour: str | None = Field(description="Of its pages and mails", examples=["#1d4ed8"])
    logo_hash_id: str | None = Field(
        description="The image on its pages", examples=["k3v09xq2m7ta"]
    )
    sender_name: str | None = Field(
        description="Who its mails say that they are from", examples=["The Demo team"]
    )
    sign_up_text: str | None = Field(
        description="On the page on which people subscribe",
        examples=["One letter each morning, in two minutes."],
    )
    thanks_text: str | None = Field(
        description="On the page after the confirmation; on the page after the form too, where the "
        "list has no `confirm_required`",
        examples=["The next letter comes tomorrow at six."],
    )
    confirmation_text: str | None = Field(
        description="In the mail that asks for a confirmation, as the owner's words",
        examples=["Welcome to The Daily Demo!"],
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
        description="false: whoever names an address makes it a member, without its person's word",
    )
    redirect_origins: Annotated[list[str], AtMost(_MAX_ORIGINS)] = Field(
        default_factory=list,
        description="At most 10 origins of web pages, to which a sign-up form may lead back",
        examples=[["https://www.example.com"]],
    )
    asked_fields: FieldKeys | None = Field(
        default=None,
        description="Keys of your public fields that its sign-up form asks for; null: all of them",
        examples=[["city"]],
    )
    required_fields: FieldKeys = Field(
        default_factory=list,
        description="The fields among them without which nobody signs up",
        examples=[["city"]],
    )
    consent_wording: str | None = Field(
        default=None,
        max_length=MAX_WORDING_CHARACTERS,
        description="What people agree to who subscribe. Each version is kept; null: no text",
        examples=["I want The Daily Demo by e-mail. I can leave at any time."],
    )

    colour: str | None = Field(
        default=None,
        description="#rrggbb, with a contrast of at least 4.5 to our pages; a lighter one is made "
        "of it for dark windows",
        examples=["#1d4ed8"],
    )
    logo_hash_id: str | None = Field(
        default=None,
        description="One of the owner's own attachments that are not encrypted",
        examples=["k3v09xq2m7ta"],
    )
    sender_name: str | None = Field(
        default=None,
        description=f"At most {MAX_SENDER_CHARACTERS} characters; mails are from '<name> via "
        "<installation>', at the installation's address",
        examples=["The Demo team"],
    )
    sign_up_text: str | None = Field(
        default=None,
        description=f"Plain text of at most {MAX_PAGE_TEXT_CHARACTERS} characters without links",
        examples=["One letter each morning, in two minutes."],
    )
    thanks_text: str | None = Field(
        default=None,
        description=f"Plain text of at most {MAX_PAGE_TEXT_CHARACTERS} characters without links",
        examples=["The next letter comes tomorrow at six."],
    )
    confirmation_text: str | None = Field(
        default=None,
        description=f"Plain text of at most {MAX_MAIL_TEXT_CHARACTERS} characters without links",
        examples=["Welcome to The Daily Demo!"],
    )


class NewList(ListFields):
    title: str = Field(description="1 to 200 characters", examples=["The Daily Demo"])
    slug: str = Field(
        description="1 to 80 of a-z, 0-9 and '-', never all digits", examples=["the-daily-demo"]
    )


class ListChanges(ListFields):
    title: str = Field(default="", description="1 to 200 characters", examples=["The Daily Demo"])
    slug: str = Field(default="", description="1 to 80 of a-z, 0-9 and '-', never all digits")


class EmbeddedForm(Schema):
    """A list's sign-up form for a page of another site."""

    html: str = Field(
        description="To be pasted as it is: no frame, no style, and no script but a challenge's",
        examples=['<form method="post" action="https://pressroom.example.com/subscriptions/4711">'],
    )
    action: str = Field(
        description="Where the form is sent",
        examples=["https://pressroom.example.com/subscriptions/4711"],
    )
    page_url: str = Field(
        description="The list's own page with the same form",
        examples=["https://pressroom.example.com/s/the-daily-demo"],
    )


class PreviewPart(StrEnum):
    SIGN_UP = "sign_up"
    THANKS = "thanks"
    CONFIRMATION_MAIL = "confirmation_mail"


class ListPreview(Schema):
    """A page or a mail as readers get it."""

    html: str = Field(examples=["<!doctype html>"])
    subject: str | None = Field(
        default=None, description="Of a mail", examples=["Confirm: “The Daily Demo”"]
    )
    text: str | None = Field(
        default=None, description="The same mail as plain text", examples=["Please confirm"]
    )
    sender_name: str | None = Field(
        default=None,
        description="Whom the mail is from, before 'via' and the installation's name; null: from "
        "the installation alone",
        examples=["The Demo team"],
    )


class FiguresRow(Schema):
    key: str = Field(description="The day, the source or the tier", examples=["2026-11-20"])
    joined: int = Field(description="How often a person became an active member", examples=[31])
    left: int = Field(
        description="How often an active member ceased to be one, whoever wanted it", examples=[4]
    )
    net: int = Field(description="joined - left", examples=[27])


class ListFigures(Schema):
    by: FiguresBy
    first_day: date = Field(description="Days are those of UTC", examples=["2026-11-20"])
    last_day: date = Field(examples=["2026-11-20"])
    rows: list[FiguresRow] = Field(
        description="Each day in order; or the sources, or the tiers, of those who came or went"
    )
    asked: int = Field(
        description="How often in this time a person was asked by mail to confirm", examples=[120]
    )
    confirmed: int = Field(description="How often one did so", examples=[96])

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
        description="*.example.org stands for all subdomains of example.org",
        examples=[_EXAMPLE_DOMAINS],
    )
    erased: int = Field(
        description="The number of denied addresses of erased people; these can't be listed, "
        "because only hashes of them are stored",
        examples=[0],
    )


class NewDenyList(Body):
    addresses: Entries = Field(examples=[_EXAMPLE_ADDRESSES])
    domains: Entries = Field(
        description="*.example.org stands for all subdomains of example.org",
        examples=[_EXAMPLE_DOMAINS],
    )


class DenyListChanges(Body):
    add_addresses: Entries = Field(default_factory=list, examples=[_EXAMPLE_ADDRESSES])
    add_domains: Entries = Field(default_factory=list, examples=[_EXAMPLE_DOMAINS])
    remove_addresses: Entries = Field(default_factory=list, examples=[["mistaken@example.com"]])
    remove_domains: Entries = Field(default_factory=list, examples=[["example.com"]])
