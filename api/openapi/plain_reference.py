"""Writes the API reference as Markdown, with one page per chapter, for language models."""

from collections.abc import Iterator
from functools import cache
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse, Response

from api.openapi.document import TAGS
from api.openapi.samples import JsonSchema, resolve_schema
from core.errors import requests
from core.settings import Settings

_INDEX_PATH = "/llms.txt"
# The folder of the pages also contains the files of the API reference.
_PAGE_PATH = "/docs/{chapter}.md"
_HEAD = """# Pressroom API

> Pressroom is the back end of a newsletter platform: lists, members, images, texts and credits.

Send an API key as `Authorization: Bearer …`. A successful response is `{"data": …, "ts": …}`. An
error has a stable `code`. In the samples, `$API` is BASE, and `$KEY` is your API key. `client` is
the typed client for Python, and `pressroom` is the typed client for JavaScript.
"""


def add_plain_reference(app: FastAPI, settings: Settings) -> None:
    @cache
    def write_reference() -> tuple[str, dict[str, str]]:
        document = app.openapi()
        return write_index(document, settings.public_base), write_pages(document)

    async def show_index(_: Request) -> Response:
        return PlainTextResponse(write_reference()[0])

    async def show_chapter(request: Request) -> Response:
        page = write_reference()[1].get(request.path_params["chapter"])
        if page is None:
            raise requests.ROUTE_NOT_FOUND()
        return PlainTextResponse(page, media_type="text/markdown")

    app.add_route(_INDEX_PATH, show_index, include_in_schema=False)
    app.add_route(_PAGE_PATH, show_chapter, include_in_schema=False)


def name_chapter(tag: str) -> str:
    return tag.lower().replace(" ", "-")


def write_index(document: dict[str, Any], base: str) -> str:
    """Return the index of the pages. All links are absolute, and ``base`` is the API's URL."""
    pages = (
        f"- [{tag}]({base}{_PAGE_PATH.format(chapter=name_chapter(tag))}): {entry.description}"
        for tag, entry in TAGS.items()
    )
    guides = [
        f"- [{tag['name']}]({tag['externalDocs']['url']}): the guide to {tag['name'].lower()}"
        for tag in document["tags"]
        if "externalDocs" in tag
    ]
    sections = [_HEAD.replace("BASE", base), "## Reference\n", *pages]
    if guides:
        sections += ["\n## Guides\n", *guides]
    sections += [
        "\n## Optional\n",
        f"- [OpenAPI document]({base}/openapi.json): the whole reference, about a megabyte of JSON",
    ]
    return "\n".join(sections) + "\n"


def write_pages(document: dict[str, Any]) -> dict[str, str]:
    """Return the page of each chapter, by the chapter's name in the path."""
    return {name_chapter(tag): _write_page(document, tag) for tag in TAGS}


def _write_page(document: dict[str, Any], tag: str) -> str:
    operations = (
        (f"{method.upper()} {path}", operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if tag in operation["tags"]
    )
    schemas = document["components"]["schemas"]
    sections = (
        "\n".join(_describe_operation(name, operation, schemas)) for name, operation in operations
    )
    return "\n".join([f"# {tag}\n", TAGS[tag].description, *sections]) + "\n"


def _describe_operation(
    name: str, operation: dict[str, Any], schemas: dict[str, JsonSchema]
) -> Iterator[str]:
    yield f"\n## {name}\n\n{operation['description'].strip()}\n"
    for parameter in operation["parameters"]:
        if "name" in parameter:
            place = f"in the {parameter['in']}"
            yield _describe_field(parameter["name"], parameter, parameter["schema"], place)
    for content in operation.get("requestBody", {}).get("content", {}).values():
        body = resolve_schema(content["schema"], schemas)
        for field, schema in body.get("properties", {}).items():
            is_required = field in body.get("required", ())
            described = {**schema, "required": is_required}
            yield _describe_field(field, described, schema, "in the body")
    yield "\nResponses:\n"
    for status, response in operation["responses"].items():
        yield f"- {status}: {' '.join(response['description'].split())}"
    for sample in operation["x-codeSamples"]:
        yield f"\n```{sample['lang'].lower()}\n{sample['source']}\n```"


def _describe_field(name: str, described: dict[str, Any], schema: JsonSchema, place: str) -> str:
    words = [_name_type(schema), place, *(["required"] if described.get("required") else [])]
    description = " ".join(described.get("description", "").split())
    return f"- `{name}` ({', '.join(words)}){': ' if description else ''}{description}"


def _name_type(schema: JsonSchema) -> str:
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(map(_name_type, schema["anyOf"]))
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if schema.get("type") == "array":
        return f"list of {_name_type(schema['items'])}"
    return str(schema.get("type", "any"))
