"""Tests that clients of a released version of the API contract also work with the current API.

The repository contains the released OpenAPI documents as files. The tests don't read the documents
from git tags, because archives and shallow clones have no tags, and because reviewers see changes
of files but not of tags.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from api.middleware.versions import VERSIONS
from cli.openapi_document import RELEASES_FOLDER, format_release
from tests.support.http.openapi import Document, openapi_document

Json = dict[str, Any]

# The JSON schema keywords for maximum limits. If an API property gets a lower maximum, values that
# were valid before may be invalid.
_MAXIMUM_KEYWORDS = ("maxLength", "maximum", "exclusiveMaximum", "maxItems")
# The JSON schema keywords for minimum limits. If an API property gets a higher minimum, values that
# were valid before may be invalid.
_MINIMUM_KEYWORDS = ("minLength", "minimum", "exclusiveMinimum", "minItems")
_SUCCESS_PREFIXES = ("2", "3")


def breaking_changes(old_document: Json, new_document: Json) -> list[str]:
    """Return a line about each breaking change, starting with the API operation that changed."""
    return list(dict.fromkeys(_Comparison(old_document, new_document).changes()))


@dataclass(frozen=True)
class _Comparison:
    old_document: Json
    new_document: Json

    def changes(self) -> Iterator[str]:
        for path, methods in self.old_document["paths"].items():
            for method, old in methods.items():
                new = self.new_document["paths"].get(path, {}).get(method)
                name = f"{method.upper()} {path}"
                if new is None:
                    yield f"{name}: is gone"
                else:
                    yield from (f"{name}: {each}" for each in self._operation(old, new))

    def _operation(self, old: Json, new: Json) -> Iterator[str]:
        if old["operationId"] != new["operationId"]:
            yield f"is called {new['operationId']}, and was {old['operationId']}"
        if any(each not in new["security"] for each in old["security"] or [{}] if new["security"]):
            yield "takes fewer credentials"
        yield from self._parameters(old, new)
        yield from self._body(old, new)
        for status, response in old["responses"].items():
            if status.startswith(_SUCCESS_PREFIXES):
                yield from self._answer(status, response, new["responses"].get(status))

    def _parameters(self, old: Json, new: Json) -> Iterator[str]:
        old_parameters = self._by_name(self.old_document, old)
        new_parameters = self._by_name(self.new_document, new)
        for place, parameter in old_parameters.items():
            if place not in new_parameters:
                yield f"{place} is gone"
            else:
                yield from self._schema(
                    place, parameter["schema"], new_parameters[place]["schema"], is_sent=True
                )
        for place, parameter in new_parameters.items():
            if parameter.get("required") and not old_parameters.get(place, {}).get("required"):
                yield f"{place} is required"

    def _by_name(self, document: Json, operation: Json) -> dict[str, Json]:
        parameters = [
            _resolve_reference(document, each) for each in operation.get("parameters", [])
        ]
        return {f"{each['in']}.{each['name']}": each for each in parameters}

    def _body(self, old: Json, new: Json) -> Iterator[str]:
        old_body = old.get("requestBody", {})
        new_body = new.get("requestBody", {})
        if new_body.get("required") and not old_body.get("required"):
            yield "body is required"
        for media_type, content in old_body.get("content", {}).items():
            if media_type not in new_body.get("content", {}):
                yield f"body may not be {media_type}"
            else:
                schema = new_body["content"][media_type]["schema"]
                yield from self._schema("body", content["schema"], schema, is_sent=True)

    def _answer(self, status: str, old: Json, new: Json | None) -> Iterator[str]:
        if new is None:
            yield f"never answers {status}"
            return
        for media_type, content in old.get("content", {}).items():
            if media_type not in new.get("content", {}):
                yield f"answers {status} never as {media_type}"
            else:
                schema = new["content"][media_type]["schema"]
                yield from self._schema(status, content["schema"], schema, is_sent=False)

    def _schema(
        self,
        place: str,
        old: Json,
        new: Json,
        *,
        is_sent: bool,
        visited_names: frozenset[str] = frozenset(),
    ) -> Iterator[str]:
        """Yield the breaking changes between two versions of a schema.

        A request that matches the old schema must also match the new schema. A response that
        matches the new schema must also match the old schema.
        """
        name = old.get("$ref", "")
        if name and name in visited_names:
            return
        visited_names |= {name}
        old_types = _schemas_by_type(self.old_document, old)
        new_types = _schemas_by_type(self.new_document, new)
        removed_types = old_types.keys() - new_types.keys()
        added_types = new_types.keys() - old_types.keys()
        for kind in removed_types if is_sent else added_types:
            yield f"{place} may {'not be' if is_sent else 'be'} {kind}"
        for kind in old_types.keys() & new_types.keys():
            old_schema = old_types[kind]
            new_schema = new_types[kind]
            yield from _find_narrower_types(place, old_schema, new_schema, is_sent=is_sent)
            yield from _find_required_changes(place, old_schema, new_schema, is_sent=is_sent)
            for field, schema in old_schema.get("properties", {}).items():
                inner_place = f"{place}.{field}"
                if field not in new_schema.get("properties", {}):
                    yield f"{inner_place} is gone"
                    continue
                new_field = new_schema["properties"][field]
                yield from self._schema(
                    inner_place, schema, new_field, is_sent=is_sent, visited_names=visited_names
                )
            for keyword, suffix in (("items", "[]"), ("additionalProperties", ".*")):
                old_part = old_schema.get(keyword)
                new_part = new_schema.get(keyword)
                if isinstance(old_part, dict) and isinstance(new_part, dict):
                    yield from self._schema(
                        f"{place}{suffix}",
                        old_part,
                        new_part,
                        is_sent=is_sent,
                        visited_names=visited_names,
                    )


def _resolve_reference(document: Json, node: Json) -> Json:
    """Return the component to which ``$ref`` in a node points, or else the node itself."""
    while "$ref" in node:
        target: Any = document
        for step in node["$ref"].removeprefix("#/").split("/"):
            target = target[step]
        node = target
    return node


def _schemas_by_type(document: Json, schema: Json) -> dict[str, Json]:
    """Map each JSON type that a schema allows to the schema for values of this type."""
    schema = _resolve_reference(document, schema)
    if "anyOf" in schema:
        kinds: dict[str, Json] = {}
        for each in schema["anyOf"]:
            kinds |= _schemas_by_type(document, each)
        return kinds
    types = schema.get("type", "anything")
    return dict.fromkeys([types] if isinstance(types, str) else types, schema)


def _find_narrower_types(place: str, old: Json, new: Json, *, is_sent: bool) -> Iterator[str]:
    if old.get("format") != new.get("format") and (is_sent or "format" in old):
        yield f"{place} has the format {new.get('format')}, and had {old.get('format')}"
    if is_sent:
        yield from _find_narrower_bounds(place, old, new)


def _find_narrower_bounds(place: str, old: Json, new: Json) -> Iterator[str]:
    for value in old.get("enum", []):
        if "enum" in new and value not in new["enum"]:
            yield f"{place} may not be {value}"
    if "enum" in new and "enum" not in old:
        yield f"{place} may only be one of {len(new['enum'])} values"
    for bound in _MAXIMUM_KEYWORDS:
        if bound in new and new[bound] < old.get(bound, float("inf")):
            yield f"{place} has the {bound} {new[bound]}"
    for bound in _MINIMUM_KEYWORDS:
        if bound in new and new[bound] > old.get(bound, float("-inf")):
            yield f"{place} has the {bound} {new[bound]}"
    if "pattern" in new and new["pattern"] != old.get("pattern"):
        yield f"{place} has the pattern {new['pattern']}"


def _find_required_changes(place: str, old: Json, new: Json, *, is_sent: bool) -> Iterator[str]:
    old_names = set(old.get("required", []))
    new_names = set(new.get("required", []))
    if is_sent:
        yield from (f"{place}.{each} is required" for each in sorted(new_names - old_names))
    else:
        no_longer_required = (old_names - new_names) & new.get("properties", {}).keys()
        yield from (f"{place}.{each} may be missing" for each in sorted(no_longer_required))


# Maps each accepted breaking change since the newest released version to its reason. The keys are
# lines that `breaking_changes` returns. A breaking change that isn't declared here requires a new
# version of the API: see docs/conventions.md.
_NULL_FOR_ANALYSTS = (
    "Only a teammate with the role analyst gets null. An earlier release has no teammates, so its "
    "callers don't meet it."
)
DECLARED_BREAKING_CHANGES: dict[str, str] = {
    "GET /imports: 200.data.items[].errors_url may be null": _NULL_FOR_ANALYSTS,
    "GET /imports/{import_id}: 200.data.errors_url may be null": _NULL_FOR_ANALYSTS,
    "GET /lists/{list_id}/segments: 200.data.items[].filter may be null": _NULL_FOR_ANALYSTS,
    "POST /lists/{list_id}/segments: 200.data.filter may be null": _NULL_FOR_ANALYSTS,
    "GET /lists/{list_id}/segments/{segment_id}: 200.data.filter may be null": _NULL_FOR_ANALYSTS,
    "PATCH /lists/{list_id}/segments/{segment_id}: 200.data.filter may be null": _NULL_FOR_ANALYSTS,
    "POST /senders/{sender_id}/try: 200.data[].outcome may be null": (
        "A security fix: the outcome tells who is a member. A key without the scope "
        "subscription.read must not get it."
    ),
}


def load_released_document() -> Document:
    document: Document = json.loads((RELEASES_FOLDER / f"{VERSIONS[0]}.json").read_text())
    return document


def test_api_has_no_undeclared_breaking_changes_since_the_released_version() -> None:
    changes = breaking_changes(load_released_document(), openapi_document())
    assert set(changes) == DECLARED_BREAKING_CHANGES.keys()
    assert all(DECLARED_BREAKING_CHANGES.values())


def test_every_api_version_has_a_released_openapi_document() -> None:
    assert {each.stem for each in RELEASES_FOLDER.glob("*.json")} == set(VERSIONS)
    for version in VERSIONS:
        text = (RELEASES_FOLDER / f"{version}.json").read_text()
        document = json.loads(text)
        assert document["info"]["version"] == version
        # The file equals the output of `format_release`, so nobody has edited the file by hand.
        assert text == format_release(document)


def _schema(document: Document, name: str) -> Any:
    return document["components"]["schemas"][name]


def _remove_path(document: Document) -> None:
    del document["paths"]["/imports"]


def _remove_response_field(document: Document) -> None:
    del _schema(document, "Channel")["properties"]["tagline"]


def _require_new_field(document: Document) -> None:
    _schema(document, "NewList")["properties"]["language"] = {"type": "string"}
    _schema(document, "NewList")["required"].append("language")


def _narrow_enum(document: Document) -> None:
    _schema(document, "Tier")["enum"].remove("silver")


def _require_credentials(document: Document) -> None:
    topup = document["paths"]["/auxilia/credits/topup"]["post"]
    topup["security"].remove({})


@pytest.mark.parametrize(
    ("change", "expected_line"),
    [
        (_remove_path, "GET /imports: is gone"),
        (_remove_response_field, "GET /lists: 200.data.items[].tagline is gone"),
        (_require_new_field, "POST /lists: body.language is required"),
        (_narrow_enum, "PATCH /lists/{list_id}/members/{user_id}: body.type may not be silver"),
        (_require_credentials, "POST /auxilia/credits/topup: takes fewer credentials"),
    ],
)
def test_contract_comparison_detects_breaking_changes(
    change: Callable[[Document], None], expected_line: str
) -> None:
    document = load_released_document()
    change(document)
    assert expected_line in breaking_changes(load_released_document(), document)


def test_contract_comparison_accepts_a_new_optional_field() -> None:
    document = load_released_document()
    _schema(document, "NewList")["properties"]["language"] = {"type": "string"}
    assert breaking_changes(load_released_document(), document) == []
