"""The request and response bodies of the API endpoints for the composer."""

from enum import StrEnum
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from api.schemas.envelope import Body, Url
from integrations.stock_photos.port import PhotoProviderName
from services.composer.text.post import MAX_POST_CONTENT_CHARACTERS, MAX_POST_TITLE_CHARACTERS, Post


class PostBody(Body):
    title: str = Field(max_length=MAX_POST_TITLE_CHARACTERS, examples=["How we bake bread"])
    content: str = Field(
        max_length=MAX_POST_CONTENT_CHARACTERS,
        description="Plain text, Markdown or HTML",
        examples=["Flour, water, salt and time are all that a loaf needs. We start at five."],
    )

    @model_validator(mode="after")
    def _not_all_blank(self) -> Self:
        if not (self.title.strip() or self.content.strip()):
            raise PydanticCustomError("blank", "title and content must not both be blank")
        return self

    def post(self) -> Post:
        return Post(self.title, self.content)


class GeneratedMetadata(BaseModel):
    """The generated fields. Only requested fields are included."""

    slug: str = Field(
        default="",
        description="1 to 80 characters from a-z, 0-9 and hyphens",
        examples=["how-we-bake-bread"],
    )
    summary: str = Field(
        default="",
        description="Plain text in the language of the post, at most 300 characters",
        examples=["Flour, water, salt and time are all that a loaf needs."],
    )
    tags: str = Field(
        default="", description="At most 8 tags, separated by commas", examples=["bread,sourdough"]
    )


class GeneratedTweets(BaseModel):
    tweets: str = Field(
        description="1 to 5 tweets, separated by blank lines. Each tweet has at most 280 "
        "characters as the platform counts them. A wide character counts as 2, "
        "and a link as 23.",
        examples=["Flour, water, salt and time: that is a loaf.\n\nWe start at five."],
    )


class PhotoFile(BaseModel):
    url: Url = Field(examples=["https://images.example.com/photos/loaf.jpg"])


class PhotoPage(BaseModel):
    """The provider's payload, in the provider's own format."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={"examples": [{"total": 1, "results": [{"id": "LBI7cgq3pbM"}]}]},
    )


class StockPhotoSource(StrEnum):
    """The provider of stock photos. ``default`` selects the configured provider."""

    CONFIGURED = "stockphoto"
    UNSPLASH = "unsplash"
    OPENVERSE = "openverse"

    def named(self, configured: PhotoProviderName) -> PhotoProviderName:
        return configured if self is StockPhotoSource.CONFIGURED else PhotoProviderName(self.value)
