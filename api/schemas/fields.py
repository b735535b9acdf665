"""The request and response bodies of the API endpoints for member fields and tags."""

from typing import Annotated, Any

from pydantic import AfterValidator, Field

from api.schemas.envelope import AtMost, Body, ChangesBody, OneError, Schema, Timestamp
from models import FieldType
from services.subscriptions import tags
from services.subscriptions.fields import MAX_FIELDS, MAX_KEY_CHARACTERS, MAX_VALUE_CHARACTERS
from services.subscriptions.tags import MAX_TAGS_OF_MEMBER

# Turn off Pydantic's strict mode, because strict mode accepts only enum members, but a JSON request
# body contains strings.
FieldTypeName = Annotated[FieldType, Field(strict=False)]
_Key = Annotated[str, Field(max_length=MAX_KEY_CHARACTERS)]
_Value = Annotated[
    str | bool | int | float,
    OneError(
        "value_type",
        f"must be a string of at most {MAX_VALUE_CHARACTERS} characters, a number, true, false or "
        "null",
    ),
]

FieldValues = Annotated[
    dict[_Key, _Value | None],
    AtMost(MAX_FIELDS),
    Field(
        description="Values by field key. null removes a value. Fields that the request omits "
        "don't change.",
        examples=[{"city": "Paris", "visits": 3, "birthday": "1990-02-28", "vegan": True}],
    ),
]
ShownFields = Annotated[
    dict[str, str | bool | int | float],
    Field(
        description="Values by the keys of the owner's fields",
        examples=[{"city": "Paris", "visits": 3}],
    ),
]
ShownTags = Annotated[list[str], Field(examples=[["Spring fair", "VIP"]])]
TagName = Annotated[str, AfterValidator(tags.normalise_tag)]
TagNames = Annotated[
    list[TagName],
    AtMost(MAX_TAGS_OF_MEMBER),
    Field(
        description="Tags of 1 to 40 characters without commas. Upper and lower case are "
        "treated as equal.",
        examples=[["VIP", "Spring fair"]],
    ),
]

# The service allows only 100 choices, and has a separate error code for too many choices.
_MAX_CHOICES = 1_000
_KEY_DESCRIPTION = (
    "1 to 40 characters from a-z, 0-9 and '_', starting with a letter. The "
    "key identifies the field in requests and responses."
)
_CHOICES_DESCRIPTION = "Choices of a field of the type choice, 1 to 100 texts"
_PUBLIC_DESCRIPTION = "Whether people can set the field when they subscribe"


class FieldRecord(Schema):
    id: int = Field(examples=[12])
    key: str = Field(examples=["city"])
    label: str = Field(examples=["City"])
    description: str | None = Field(examples=["Where parcels go"])
    type: FieldType
    choices: list[str] = Field(description=_CHOICES_DESCRIPTION, examples=[[]])
    public: bool = Field(description=_PUBLIC_DESCRIPTION)
    created_at: Timestamp


class _FieldWords(Body):
    description: str | None = Field(default=None, max_length=500, examples=["Where parcels go"])
    choices: Annotated[list[str], AtMost(_MAX_CHOICES)] = Field(
        default_factory=list, description=_CHOICES_DESCRIPTION
    )
    public: bool = Field(default=False, description=_PUBLIC_DESCRIPTION)

    def columns(self) -> dict[str, Any]:
        """Return the values that the request contains, by the names of the database columns."""
        sent = self.sent()
        return {"is_public" if name == "public" else name: sent[name] for name in sent}


class NewField(_FieldWords):
    key: str = Field(description=_KEY_DESCRIPTION, examples=["city"])
    label: str = Field(description="Label of the field, 1 to 100 characters", examples=["City"])
    type: FieldTypeName = Field(
        description="text, number, date, boolean or choice", examples=["text"]
    )


class FieldChanges(_FieldWords, ChangesBody):
    key: str = Field(default="", description=_KEY_DESCRIPTION, examples=["town"])
    label: str = Field(
        default="", description="Label of the field, 1 to 100 characters", examples=["Town"]
    )
    type: FieldTypeName = Field(
        default=FieldType.TEXT,
        description="Type of the field. A new type converts all values, and is rejected if a "
        "value can't be converted.",
        examples=["number"],
    )


class TagRecord(Schema):
    id: int = Field(examples=[31])
    name: str = Field(
        description="Name of the tag, with upper and lower case as in its first use",
        examples=["VIP"],
    )
    created_at: Timestamp


class TagChange(ChangesBody):
    name: TagName = Field(
        description="Name of the tag, 1 to 40 characters without commas. Upper and lower case "
        "are treated as equal.",
        examples=["Patrons"],
    )
