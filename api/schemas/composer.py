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
        description="Plain, Markdown or HTML",
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
    """Only the fields that were asked for."""

    slug: str = Field(
        default="", description="1 to 80 of a-z, 0-9 and hyphens", examples=["how-we-bake-bread"]
    )
    summary: str = Field(
        default="",
        description="Plain text in the post's language, at most 300 characters",
        examples=["Flour, water, salt and time are all that a loaf needs."],
    )
    tags: str = Field(
        default="", description="At most 8, separated by commas", examples=["bread,sourdough"]
    )


class GeneratedTweets(BaseModel):
    tweets: str = Field(
        description="1 to 5 tweets, separated by one blank line; each has at most 280 characters "
        "as the platform counts: wide ones are 2, a link is 23",
        examples=["Flour, water, salt and time: that is a loaf.\n\nWe start at five."],
    )


class PhotoFile(BaseModel):
    url: Url = Field(examples=["https://images.example.com/photos/loaf.jpg"])


class PhotoPage(BaseModel):
    """The provider's own payload: its shape is the provider's."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={"examples": [{"total": 1, "results": [{"id": "LBI7cgq3pbM"}]}]},
    )


class StockPhotoSource(StrEnum):
    """The provider of the settings, or one by its name."""

    CONFIGURED = "stockphoto"
    UNSPLASH = "unsplash"
    OPENVERSE = "openverse"

    def named(self, configured: PhotoProviderName) -> PhotoProviderName:
        return configured if self is StockPhotoSource.CONFIGURED else PhotoProviderName(self.value)
