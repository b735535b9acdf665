"""Programs that were written for a released version of the contract go on working.

The released documents are files of the repository: an archive or a shallow clone has no tags, and
a reviewer sees what a change does to them.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from api.middleware.versions import VERSIONS
from api.schemas.envelope import MAX_TEXT_CHARACTERS
from cli.openapi_document import RELEASES_FOLDER, format_release
from tests.support.http.openapi import Document, openapi_document

Json = dict[str, Any]

# Bounds of a value: what a lower or a higher one does to values that were right before.
_LOWER_NARROWS = ("maxLength", "maximum", "exclusiveMaximum", "maxItems")
_HIGHER_NARROWS = ("minLength", "minimum", "exclusiveMinimum", "minItems")
_SUCCESS = ("2", "3")


def breaking_changes(before: Json, after: Json) -> list[str]:
    """A sentence for each, which begins with the operation that it breaks."""
    return list(dict.fromkeys(_Comparison(before, after).changes()))


@dataclass(frozen=True)
class _Comparison:
    before: Json
    after: Json

    def changes(self) -> Iterator[str]:
        for path, methods in self.before["paths"].items():
            for method, old in methods.items():
                new = self.after["paths"].get(path, {}).get(method)
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
        for status, answer in old["responses"].items():
            if status.startswith(_SUCCESS):
                yield from self._answer(status, answer, new["responses"].get(status))

    def _parameters(self, old: Json, new: Json) -> Iterator[str]:
        known, now = self._by_name(self.before, old), self._by_name(self.after, new)
        for place, parameter in known.items():
            if place not in now:
                yield f"{place} is gone"
            else:
                yield from self._schema(
                    place, parameter["schema"], now[place]["schema"], is_sent=True
                )
        for place, parameter in now.items():
            if parameter.get("required") and not known.get(place, {}).get("required"):
                yield f"{place} is required"

    def _by_name(self, document: Json, operation: Json) -> dict[str, Json]:
        named = [_resolved(document, each) for each in operation.get("parameters", [])]
        return {f"{each['in']}.{each['name']}": each for each in named}

    def _body(self, old: Json, new: Json) -> Iterator[str]:
        known, now = old.get("requestBody", {}), new.get("requestBody", {})
        if now.get("required") and not known.get("required"):
            yield "body is required"
        for kind, content in known.get("content", {}).items():
            if kind not in now.get("content", {}):
                yield f"body may not be {kind}"
            else:
                schema = now["content"][kind]["schema"]
                yield from self._schema("body", content["schema"], schema, is_sent=True)

    def _answer(self, status: str, old: Json, new: Json | None) -> Iterator[str]:
        if new is None:
            yield f"never answers {status}"
            return
        for kind, content in old.get("content", {}).items():
            if kind not in new.get("content", {}):
                yield f"answers {status} never as {kind}"
            else:
                schema = new["content"][kind]["schema"]
                yield from self._schema(status, content["schema"], schema, is_sent=False)

    def _schema(
        self, place: str, old: Json, new: Json, *, is_sent: bool, seen: frozenset[str] = frozenset()
    ) -> Iterator[str]:
        """All that a caller sent rightly must still be right; what they get must be as before."""
        name = old.get("$ref", "")
        if name and name in seen:
            return
        seen |= {name}
        known, now = _kinds(self.before, old), _kinds(self.after, new)
        for kind in (known.keys() - now.keys()) if is_sent else (now.keys() - known.keys()):
            yield f"{place} may {'not be' if is_sent else 'be'} {kind}"
        for kind in known.keys() & now.keys():
            of, to = known[kind], now[kind]
            yield from _narrowed(place, of, to, is_sent=is_sent)
            yield from _required(place, of, to, is_sent=is_sent)
            for field, schema in of.get("properties", {}).items():
                inner = f"{place}.{field}"
                if field not in to.get("properties", {}):
                    yield f"{inner} is gone"
                    continue
                more = to["properties"][field]
                yield from self._schema(inner, schema, more, is_sent=is_sent, seen=seen)
            for part, mark in (("items", "[]"), ("additionalProperties", ".*")):
                if isinstance(of.get(part), dict) and isinstance(to.get(part), dict):
                    yield from self._schema(
                        f"{place}{mark}", of[part], to[part], is_sent=is_sent, seen=seen
                    )


def _resolved(document: Json, node: Json) -> Json:
    """The node, or the component to which it refers."""
    while "$ref" in node:
        found: Any = document
        for step in node["$ref"].removeprefix("#/").split("/"):
            found = found[step]
        node = found
    return node


def _kinds(document: Json, schema: Json) -> dict[str, Json]:
    """What the value may be, by its type."""
    schema = _resolved(document, schema)
    if "anyOf" in schema:
        kinds: dict[str, Json] = {}
        for each in schema["anyOf"]:
            kinds |= _kinds(document, each)
        return kinds
    types = schema.get("type", "anything")
    return dict.fromkeys([types] if isinstance(types, str) else types, schema)


def _narrowed(place: str, old: Json, new: Json, *, is_sent: bool) -> Iterator[str]:
    if old.get("format") != new.get("format") and (is_sent or "format" in old):
        yield f"{place} has the format {new.get('format')}, and had {old.get('format')}"
    if is_sent:
        yield from _bounded(place, old, new)


def _bounded(place: str, old: Json, new: Json) -> Iterator[str]:
    for value in old.get("enum", []):
        if "enum" in new and value not in new["enum"]:
            yield f"{place} may not be {value}"
    if "enum" in new and "enum" not in old:
        yield f"{place} may only be one of {len(new['enum'])} values"
    for bound in _LOWER_NARROWS:
        if bound in new and new[bound] < old.get(bound, float("inf")):
            yield f"{place} has the {bound} {new[bound]}"
    for bound in _HIGHER_NARROWS:
        if bound in new and new[bound] > old.get(bound, float("-inf")):
            yield f"{place} has the {bound} {new[bound]}"
    if "pattern" in new and new["pattern"] != old.get("pattern"):
        yield f"{place} has the pattern {new['pattern']}"


def _required(place: str, old: Json, new: Json, *, is_sent: bool) -> Iterator[str]:
    known, now = set(old.get("required", [])), set(new.get("required", []))
    if is_sent:
        yield from (f"{place}.{each} is required" for each in sorted(now - known))
    else:
        gone = (known - now) & new.get("properties", {}).keys()
        yield from (f"{place}.{each} may be missing" for each in sorted(gone))


LIST_OPERATIONS = (
    "POST /lists",
    "PATCH /lists/{list_id}",
    "POST /lists/{list_id}/previews/{part}",
)
# Breaking changes since the release of the newest version, as the test says them, each with its
# reason. A change that is declared here makes a version of its own: see docs/conventions.md.
DECLARED: dict[str, str] = {
    f"{operation}: body.{field} has the maxItems {most}": (
        "A fix of a security fault: a million items took the memory of the server. The server "
        "refused so many items before, or has fewer different values."
    )
    for operations, field, most in (
        (LIST_OPERATIONS, "redirect_origins", 100),
        (("POST /fields", "PATCH /fields/{field_id}"), "choices", 1_000),
        (("POST /lists/{list_id}/exports",), "status", 100),
        (("POST /apikeys",), "scopes", 100),
    )
    for operation in operations
} | {
    f"{operation}: 200.data{place}.filter.{operator} may be object": (
        "A filter contains days_ago only if its owner has written it, so no existing program gets "
        "an object."
    )
    for operation, place in (
        ("GET /lists/{list_id}/segments", ".items[]"),
        ("POST /lists/{list_id}/segments", ""),
        ("GET /lists/{list_id}/segments/{segment_id}", ""),
        ("PATCH /lists/{list_id}/segments/{segment_id}", ""),
    )
    for operator in ("is", "is_not", "before", "after", "at_least", "at_most")
}
# The change that documents a maximum for texts without one. It breaks no program, because the
# server had already refused even shorter texts.
DECLARED_BOUND = f" has the maxLength {MAX_TEXT_CHARACTERS}"


def released() -> Document:
    document: Document = json.loads((RELEASES_FOLDER / f"{VERSIONS[0]}.json").read_text())
    return document


def test_api_has_no_undeclared_breaking_changes_since_the_released_version() -> None:
    changes = breaking_changes(released(), openapi_document())
    assert {each for each in changes if not each.endswith(DECLARED_BOUND)} == DECLARED.keys()
    assert all(DECLARED.values())


def test_every_api_version_has_a_released_openapi_document() -> None:
    assert {each.stem for each in RELEASES_FOLDER.glob("*.json")} == set(VERSIONS)
    for version in VERSIONS:
        text = (RELEASES_FOLDER / f"{version}.json").read_text()
        document = json.loads(text)
        assert document["info"]["version"] == version
        # Nobody edits it by hand, and each operation has lines of its own.
        assert text == format_release(document)


def _schema(document: Document, name: str) -> Any:
    return document["components"]["schemas"][name]


def _remove_path(document: Document) -> None:
    del document["paths"]["/imports"]


def _remove_field_of_answer(document: Document) -> None:
    del _schema(document, "Channel")["properties"]["tagline"]


def _demand_new_field(document: Document) -> None:
    _schema(document, "NewList")["properties"]["language"] = {"type": "string"}
    _schema(document, "NewList")["required"].append("language")


def _narrow_enum(document: Document) -> None:
    _schema(document, "Tier")["enum"].remove("silver")


def _close_to_strangers(document: Document) -> None:
    topup = document["paths"]["/auxilia/credits/topup"]["post"]
    topup["security"].remove({})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_remove_path, "GET /imports: is gone"),
        (_remove_field_of_answer, "GET /lists: 200.data.items[].tagline is gone"),
        (_demand_new_field, "POST /lists: body.language is required"),
        (_narrow_enum, "PATCH /lists/{list_id}/members/{user_id}: body.type may not be silver"),
        (_close_to_strangers, "POST /auxilia/credits/topup: takes fewer credentials"),
    ],
)
def test_contract_comparison_detects_breaking_changes(
    change: Callable[[Document], None], said: str
) -> None:
    document = released()
    change(document)
    assert said in breaking_changes(released(), document)


def test_contract_comparison_accepts_a_new_optional_field() -> None:
    document = released()
    _schema(document, "NewList")["properties"]["language"] = {"type": "string"}
    assert breaking_changes(released(), document) == []
