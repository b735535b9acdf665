"""Base classes of request and response bodies, and the envelope around each response."""

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

# The maximum length of a text in a request, unless the text's schema has another maximum. A service
# may have a lower maximum for a text, with a separate error code. The general maximum keeps the
# checks of texts in the services fast.
MAX_TEXT_CHARACTERS = 10_000
# If the schema of a list allows more than ``MAX_ITEMS_WITH_ERRORS`` items, only the first wrong
# item is reported, to limit the size of errors.
MAX_ITEMS_WITH_ERRORS = 100
# Times near the first and the last year can't be converted between time zones.
_ALLOWED_YEARS = range(1970, 9999)
_DATE_START = re.compile(r"\d{4}-\d{2}-\d{2}[Tt ]", re.ASCII)

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


def _require_iso_text(value: object) -> object:
    # Refuse a number, because Pydantic would read a number as Unix time.
    if value is not None and not (isinstance(value, str) and _DATE_START.match(value)):
        raise ValueError("must be an ISO 8601 time with a UTC offset")
    return value


def _require_allowed_year(moment: datetime) -> datetime:
    if moment.year not in _ALLOWED_YEARS:
        raise ValueError(f"must be in the years {_ALLOWED_YEARS[0]} to {_ALLOWED_YEARS[-1]}")
    return moment


Moment = Annotated[
    AwareDatetime,
    Field(strict=False),
    BeforeValidator(_require_iso_text),
    AfterValidator(_require_allowed_year),
]


class Schema(BaseModel):
    """The base class of response records, which are built from an object's attributes."""

    model_config = ConfigDict(from_attributes=True)

    @classmethod
    def of_row(cls, row: Model, **others: Any) -> Self:
        """Build the record from the attributes of a row and from the values in ``others``.

        Fields that have a default value aren't read from the row.
        """
        stored = {
            name: getattr(row, name)
            for name, field in cls.model_fields.items()
            if field.is_required() and name not in others
        }
        return cls(**stored, **others)


@dataclass(frozen=True)
class AtMost:
    """Limits the number of items in a list or dictionary of a request.

    ``AtMost`` counts items before they are validated. Pydantic's own ``max_length`` counts the
    items of a dictionary only after all items have been validated.
    """

    items: int

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        schema: dict[str, Any] = {**handler(source)}
        assert schema["type"] in {"list", "dict"}, f"{source} is no list and no dictionary"
        # ``max_length`` becomes ``maxItems`` or ``maxProperties`` in the OpenAPI document.
        schema["max_length"] = self.items
        if schema["type"] == "list":
            schema["fail_fast"] = self.items > MAX_ITEMS_WITH_ERRORS
        return core_schema.no_info_before_validator_function(
            self._check_count, cast("CoreSchema", schema)
        )

    def _check_count(self, value: object) -> object:
        if isinstance(value, list | dict) and len(value) > self.items:
            kind = "List" if isinstance(value, list) else "Dictionary"
            context = {"field_type": kind, "max_length": self.items, "actual_length": len(value)}
            raise PydanticKnownError("too_long", context)
        return value


@dataclass(frozen=True)
class OneError:
    """The only error for a value that matches no type of a union.

    By default, Pydantic reports one error for each type of the union.
    """

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
    """The base class of request bodies.

    JSON types are strict, and unknown fields are ignored.
    """

    model_config = ConfigDict(strict=True, str_max_length=MAX_TEXT_CHARACTERS)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Add ``MAX_TEXT_CHARACTERS`` to the OpenAPI document, because Pydantic doesn't add it."""
        json_schema = handler(schema)
        for field in handler.resolve_ref_schema(json_schema).get("properties", {}).values():
            _add_max_length(field)
        return json_schema

    @field_validator("*")
    @classmethod
    def _refuse_nul(cls, value: object) -> object:
        # Postgres can't store NUL characters.
        if isinstance(value, str) and "\0" in value:
            raise ValueError("must not contain NUL characters")
        return value

    def sent(self) -> dict[str, Any]:
        """Return the fields that the request contains, including fields whose value is null."""
        return self.model_dump(exclude_unset=True)


class ChangesBody(Body):
    """The base class of the bodies of PATCH requests.

    An omitted field keeps its stored value. The OpenAPI document has no default values for these
    fields, because some generated clients would send the default values.
    """

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        json_schema = super().__get_pydantic_json_schema__(schema, handler)
        for field in handler.resolve_ref_schema(json_schema).get("properties", {}).values():
            field.pop("default", None)
        return json_schema


def _add_max_length(schema: JsonSchemaValue) -> None:
    is_text = schema.get("type") == "string" and not {"enum", "const"} & schema.keys()
    if is_text and schema.get("format") != "date-time":
        schema.setdefault("maxLength", MAX_TEXT_CHARACTERS)
    parts = [schema.get("items"), schema.get("additionalProperties"), *schema.get("anyOf", ())]
    for part in parts:
        if isinstance(part, dict):
            _add_max_length(part)


def _name_in_document(kind: Any) -> str:
    """Return a type's name in the OpenAPI document, such as ``Attachment`` or ``ApiKeyList``."""
    if kind is int:
        return "Count"
    if get_origin(kind) is list:
        return f"{_name_in_document(get_args(kind)[0])}List"
    name: str = kind.__name__
    return name.removesuffix("Record")


class Envelope(BaseModel, Generic[T]):
    data: T
    ts: int = Field(description="Time of the response, in Unix seconds")

    @classmethod
    def model_parametrized_name(cls, params: tuple[Any, ...]) -> str:
        return f"{_name_in_document(params[0])}Answer"


class Pagination(BaseModel):
    offset: int
    next_offset: int = Field(
        description="Offset of the next page, which is offset plus the number of returned items"
    )
    limit: int
    next_cursor: str | None = Field(
        description="Cursor of the next page, or null on the last page. A page can contain "
        "fewer items than limit even if more pages follow."
    )

    @classmethod
    def of(cls, request: PageRequest, page: PageOfRows[Any], **others: Any) -> Self:
        return cls(
            offset=request.offset,
            next_offset=request.offset + len(page.rows),
            limit=request.limit,
            next_cursor=page.next_cursor,
            **others,
        )


class Page(BaseModel, Generic[T]):
    pagination: Pagination
    items: list[T]

    @classmethod
    def model_parametrized_name(cls, params: tuple[Any, ...]) -> str:
        return f"{_name_in_document(params[0])}Page"


class InvalidField(BaseModel):
    field: str = Field(examples=["body.members[3].email"])
    code: str
    message: str


class Problem(BaseModel):
    """An error as RFC 9457 defines, with a stable error code."""

    type: str = Field(examples=["about:blank"])
    title: str
    status: int
    detail: str
    code: str = Field(description="Stable error code, such as attachment.too_large")
    message: str = Field(description="The same text as detail")
    ts: int
    request_id: str
    errors: list[InvalidField] = Field(
        default_factory=list,
        description="The first 100 errors of an invalid request. Omitted for other problems.",
    )
    omitted_errors: int = Field(
        default=0,
        description="Number of further errors. Omitted if `errors` lists all errors.",
    )


def build_envelope(data: T) -> Envelope[T]:
    return Envelope(data=data, ts=int(time.time()))


# Optimization: large responses without pydantic (decision 17).
def build_plain_response(data: Any) -> Response:
    """Return a JSON response with an envelope around the data, without validating the data.

    The route must declare the Pydantic model of the data. A test validates the responses of the
    route.
    """
    content = {"data": data, "ts": int(time.time())}
    return Response(orjson.dumps(content, option=orjson.OPT_UTC_Z), media_type="application/json")


# Optimization: times formatted by orjson (decision 17).
def format_plain_moment(moment: datetime | None) -> datetime | str | None:
    """Return a UTC time that ``build_plain_response`` writes in the format of a ``Timestamp``.

    A time without microseconds is returned as text, because orjson would omit the microseconds.
    """
    if moment is None or moment.microsecond:
        return moment
    return clock.format_timestamp(moment)


def build_page(
    request: PageRequest,
    read: Callable[[PageRequest], PageOfRows[R]],
    convert: Callable[[list[R]], list[S]],
) -> Page[S]:
    """Read a page of rows, and return the page's records together with pagination data."""
    page = fill_page(request, read, convert)
    return Page(pagination=Pagination.of(request, page), items=page.rows)


def fill_page(
    request: PageRequest,
    read: Callable[[PageRequest], PageOfRows[R]],
    convert: Callable[[list[R]], list[S]],
) -> PageOfRows[S]:
    """Read a page of rows, and return as many records as fit into a response.

    Args:
        read: a function that reads a page of rows.
        convert: a function that converts rows to records.
    """
    return paging.fill_page(
        request, read, convert, lambda record: len(record.model_dump_json().encode())
    )
