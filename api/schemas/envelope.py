import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Generic, Self, TypeVar, cast, get_args, get_origin

import orjson
from fastapi import Response
from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainSerializer,
    WithJsonSchema,
    field_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticKnownError, core_schema

from core import clock
from models.declarative import Model
from services import paging
from services.paging import PageOfRows, PageRequest

T = TypeVar("T")
R = TypeVar("R")
S = TypeVar("S", bound=BaseModel)

Timestamp = Annotated[
    datetime,
    PlainSerializer(
        clock.format_timestamp,
        return_type=Annotated[str, WithJsonSchema({"type": "string", "format": "date-time"})],
    ),
]
Url = Annotated[str, Field(json_schema_extra={"format": "uri"})]


def _written_moment(value: object) -> object:
    # JSON has no dates, so strict mode refuses them: accept text. A number would mean Unix time.
    if value is not None and not (isinstance(value, str) and _DATE.match(value)):
        raise ValueError("must be an ISO 8601 time with an offset")
    return value


def _storable(moment: datetime) -> datetime:
    if moment.year not in _YEARS:
        raise ValueError(f"must be in the years {_YEARS[0]} to {_YEARS[-1]}")
    return moment


# Near the ends of the calendar, a moment of one time zone has no year in another.
_YEARS = range(1970, 9999)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}[Tt ]", re.ASCII)
Moment = Annotated[
    AwareDatetime, Field(strict=False), BeforeValidator(_written_moment), AfterValidator(_storable)
]


class Schema(BaseModel):
    """The content of an answer; built from a model's attributes."""

    model_config = ConfigDict(from_attributes=True)

    @classmethod
    def of_row(cls, row: Model, **others: Any) -> Self:
        """Take the row's attributes, but for fields that have a default or are in ``others``."""
        stored = {
            name: getattr(row, name)
            for name, field in cls.model_fields.items()
            if field.is_required() and name not in others
        }
        return cls(**stored, **others)


# The maximum length of each text in a request whose schema has no other maximum. A service may
# require a shorter text, and reports that with its own code. This maximum keeps its searches fast.
MAX_TEXT_CHARACTERS = 10_000
# In a list with a larger maximum, only the first wrong item is reported, to bound the errors.
MAX_ITEMS_WITH_ERRORS = 100


@dataclass(frozen=True)
class AtMost:
    """The maximum number of items in a list or dictionary in a request.

    The items are counted before any item is validated. Pydantic's own ``max_length`` counts the
    items of a dictionary only after it has validated them all.
    """

    items: int

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        schema: dict[str, Any] = {**handler(source)}
        assert schema["type"] in {"list", "dict"}, f"{source} is no list and no dictionary"
        # This becomes ``maxItems`` or ``maxProperties`` in the OpenAPI document.
        schema["max_length"] = self.items
        if schema["type"] == "list":
            schema["fail_fast"] = self.items > MAX_ITEMS_WITH_ERRORS
        return core_schema.no_info_before_validator_function(
            self._counted, cast("CoreSchema", schema)
        )

    def _counted(self, value: object) -> object:
        if isinstance(value, list | dict) and len(value) > self.items:
            kind = "List" if isinstance(value, list) else "Dictionary"
            context = {"field_type": kind, "max_length": self.items, "actual_length": len(value)}
            raise PydanticKnownError("too_long", context)
        return value


@dataclass(frozen=True)
class OneError:
    """Reports one error for a value of a union. Pydantic would report one error per type."""

    code: str
    rule: str

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        schema: dict[str, Any] = {**handler(source)}
        assert schema["type"] == "union", f"{source} is no union"
        schema["custom_error_type"] = self.code
        schema["custom_error_message"] = self.rule
        return cast("CoreSchema", schema)


class Body(BaseModel):
    """The content of a request: JSON types are strict, unknown fields are ignored."""

    model_config = ConfigDict(strict=True, str_max_length=MAX_TEXT_CHARACTERS)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Add ``MAX_TEXT_CHARACTERS`` to the OpenAPI document, because Pydantic omits it."""
        documented = handler(schema)
        for field in handler.resolve_ref_schema(documented).get("properties", {}).values():
            _bound_texts(field)
        return documented

    @field_validator("*")
    @classmethod
    def _without_nul(cls, value: object) -> object:
        # Postgres can't store a NUL character, and no text needs one.
        if isinstance(value, str) and "\0" in value:
            raise ValueError("must not hold NUL characters")
        return value

    def sent(self) -> dict[str, Any]:
        """Return the fields that the caller named, those with null too."""
        return self.model_dump(exclude_unset=True)


def _bound_texts(schema: JsonSchemaValue) -> None:
    is_text = schema.get("type") == "string" and not {"enum", "const"} & schema.keys()
    if is_text and schema.get("format") != "date-time":
        schema.setdefault("maxLength", MAX_TEXT_CHARACTERS)
    parts = [schema.get("items"), schema.get("additionalProperties"), *schema.get("anyOf", ())]
    for part in parts:
        if isinstance(part, dict):
            _bound_texts(part)


def _documented_name(kind: Any) -> str:
    """Return a type's name in the document: ``Attachment``, ``AttachmentPage``, ``ApiKeyList``."""
    if kind is int:
        return "Count"
    if get_origin(kind) is list:
        return f"{_documented_name(get_args(kind)[0])}List"
    name: str = kind.__name__
    return name.removesuffix("Record")


class Envelope(BaseModel, Generic[T]):
    data: T
    ts: int = Field(description="When the answer was made, in Unix seconds")

    @classmethod
    def model_parametrized_name(cls, params: tuple[Any, ...]) -> str:
        return f"{_documented_name(params[0])}Answer"


class Pagination(BaseModel):
    offset: int
    next_offset: int = Field(description="offset + items returned")
    limit: int
    next_cursor: str | None = Field(
        description="The next page at any depth; null at the end, and only there: a page of large "
        "items has fewer than limit"
    )

    @classmethod
    def of(cls, wanted: PageRequest, shown: PageOfRows[Any], **others: Any) -> Self:
        """Return what an answer says of the page that it shows."""
        return cls(
            offset=wanted.offset,
            next_offset=wanted.offset + len(shown.rows),
            limit=wanted.limit,
            next_cursor=shown.next_cursor,
            **others,
        )


class Page(BaseModel, Generic[T]):
    pagination: Pagination
    items: list[T]

    @classmethod
    def model_parametrized_name(cls, params: tuple[Any, ...]) -> str:
        return f"{_documented_name(params[0])}Page"


class InvalidField(BaseModel):
    field: str = Field(examples=["body.members[3].email"])
    code: str
    message: str


class Problem(BaseModel):
    """An error as RFC 9457 has it, and a stable code beside it."""

    type: str = Field(examples=["about:blank"])
    title: str
    status: int
    detail: str
    code: str = Field(description="Stable and dotted, such as attachment.too_large")
    message: str = Field(description="The same text as detail")
    ts: int
    request_id: str
    errors: list[InvalidField] = Field(
        default_factory=list,
        description="The first 100 errors of an invalid request; omitted for other problems",
    )
    omitted_errors: int = Field(
        default=0,
        description="How many more errors the request has; omitted if `errors` lists them all",
    )


def envelope(data: T) -> Envelope[T]:
    return Envelope(data=data, ts=int(time.time()))


# Optimization: large responses without pydantic (decision 17).
def enveloped(data: Any) -> Response:
    """Return a JSON response with the data in an envelope, without validating the data.

    The route declares the pydantic model of the data, and a test validates the route's responses.
    """
    content = {"data": data, "ts": int(time.time())}
    return Response(orjson.dumps(content, option=orjson.OPT_UTC_Z), media_type="application/json")


# Optimization: times formatted by orjson (decision 17).
def plain_moment(moment: datetime | None) -> datetime | str | None:
    """Return a UTC time in a form that ``enveloped`` writes in the format of a ``Timestamp``.

    orjson omits microseconds that are 0, so this function formats a time without microseconds.
    """
    if moment is None or moment.microsecond:
        return moment
    return clock.format_timestamp(moment)


def page(
    wanted: PageRequest,
    read: Callable[[PageRequest], PageOfRows[R]],
    show: Callable[[list[R]], list[S]],
) -> Page[S]:
    """Return the page that is wanted, cut as ``filled`` cuts it."""
    found = filled(wanted, read, show)
    return Page(pagination=Pagination.of(wanted, found), items=found.rows)


def filled(
    wanted: PageRequest,
    read: Callable[[PageRequest], PageOfRows[R]],
    show: Callable[[list[R]], list[S]],
) -> PageOfRows[S]:
    """Return the records of as many rows as an answer has room for.

    Args:
        read: the service that gives a page of rows.
        show: makes the records of rows.
    """
    return paging.fill(wanted, read, show, lambda record: len(record.model_dump_json().encode()))
