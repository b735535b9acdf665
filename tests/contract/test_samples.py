"""Each example of the document is one of what it stands beside."""

from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator, FormatChecker
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from tests.openapi import openapi_document

# What these answer is a file.
FILES = {"image/webp", "image/png", "image/jpeg", "application/gzip"}


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return openapi_document()


@pytest.fixture(scope="module")
def contents(document: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Each body and answer of a media type, by the place in the document."""
    return [
        (f"{operation['operationId']} {place} {kind}", content)
        for operation in operations(document)
        for place, has in (("body", operation.get("requestBody", {})), *responses(operation))
        for kind, content in has.get("content", {}).items()
    ]


def operations(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for methods in (*document["paths"].values(), *document["webhooks"].values()):
        yield from methods.values()


def responses(operation: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return list(operation["responses"].items())


def samples_of(document: dict[str, Any], content: dict[str, Any]) -> list[Any]:
    known = document["components"].get("examples", {})
    named = [
        known[each["$ref"].rpartition("/")[2]] if "$ref" in each else each
        for each in content.get("examples", {}).values()
    ]
    single = [content["example"]] if "example" in content else []
    return single + [each["value"] for each in named]


def test_every_json_body_and_every_answer_that_is_no_file_has_an_example(
    document: dict[str, Any], contents: list[tuple[str, dict[str, Any]]]
) -> None:
    without = [
        place
        for place, content in contents
        if not samples_of(document, content)
        and place.rpartition(" ")[2] not in FILES
        and not place.endswith(("multipart/form-data", "octet-stream", "text/html"))
    ]
    assert without == []


def test_every_example_fits_its_schema(
    document: dict[str, Any], contents: list[tuple[str, dict[str, Any]]]
) -> None:
    whole = DRAFT202012.create_resource(document)
    registry: Registry[Any] = Registry().with_resource("urn:document", whole)
    misfits = []
    for place, content in contents:
        schema = _absolute(content["schema"])
        validator = Draft202012Validator(schema, registry=registry, format_checker=FormatChecker())
        for sample in samples_of(document, content):
            misfits += [f"{place}: {error.message}" for error in validator.iter_errors(sample)]
    assert misfits == []


def _absolute(schema: Any) -> Any:
    """The schema with references that lead into the document."""
    if isinstance(schema, dict):
        return {
            name: f"urn:document{each}" if name == "$ref" else _absolute(each)
            for name, each in schema.items()
        }
    return [_absolute(each) for each in schema] if isinstance(schema, list) else schema
