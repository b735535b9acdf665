from typing import Literal, Self

from pydantic import Field

from api.schemas.envelope import Body, Schema, Timestamp, Url
from models import MailingList

ChallengeProvider = Literal["turnstile", "hcaptcha", "recaptcha"]
_IMAGE = "An absolute http or https address"


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
        description="Whether the list is sent by mail", examples=[True]
    )
    challenge_enabled: bool = Field(description="Whether strangers subscribe with a challenge")
    challenge_provider: ChallengeProvider | None
    challenge_site_key: str | None = Field(
        description="For the provider's widget in a page", examples=["0x4AAAAAAADnPIDROrmt1Wwj"]
    )
    confirm_required: bool = Field(description="Whether strangers confirm by a mailed link")
    created_at: Timestamp
    updated_at: Timestamp

    @classmethod
    def of(cls, mailing_list: MailingList, subscribers: int, site_key: str | None) -> Self:
        return cls.of_row(mailing_list, subscriber_count=subscribers, challenge_site_key=site_key)


class ListFields(Body):
    tagline: str | None = Field(
        default=None, max_length=500, examples=["One thing worth knowing, each morning"]
    )
    description: str | None = Field(default=None, max_length=5000)
    avatar_image_url: Url | None = Field(default=None, description=_IMAGE)
    favicon_image_url: Url | None = Field(default=None, description=_IMAGE)
    email_channel_enabled: bool = True
    challenge_enabled: bool = False
    challenge_provider: ChallengeProvider | None = None
    confirm_required: bool = False


class NewList(ListFields):
    title: str = Field(description="1 to 200 characters", examples=["The Daily Demo"])
    slug: str = Field(
        description="1 to 80 of a-z, 0-9 and '-', never all digits", examples=["the-daily-demo"]
    )


class ListChanges(ListFields):
    title: str = Field(default="", description="1 to 200 characters", examples=["The Daily Demo"])
    slug: str = Field(default="", description="1 to 80 of a-z, 0-9 and '-', never all digits")
