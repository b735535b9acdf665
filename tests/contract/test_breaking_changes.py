"""Programs that were written for a released version of the contract go on working.

The released documents are files of the repository: an archive or a shallow clone has no tags, and
a reviewer sees what a change does to them.
"""

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from api.middleware.versions import VERSIONS
from cli.openapi_document import RELEASED, released_text
from tests.contract.breaking import breaking_changes
from tests.openapi import Document, openapi_document

# Breaking changes since the release of the newest version, as the test says them, each with its
# reason. A change that is declared here makes a version of its own: see docs/api.md.
DECLARED: dict[str, str] = {}


def released() -> Document:
    document: Document = json.loads((RELEASED / f"{VERSIONS[0]}.json").read_text())
    return document


@pytest.fixture
def document() -> Document:
    """The released one, to be changed."""
    return released()


def test_nothing_of_the_released_contract_is_broken_undeclared() -> None:
    assert {*breaking_changes(released(), openapi_document())} == DECLARED.keys()
    assert all(DECLARED.values())


def test_each_version_has_its_released_document() -> None:
    assert {each.stem for each in RELEASED.glob("*.json")} == set(VERSIONS)
    for version in VERSIONS:
        text = (RELEASED / f"{version}.json").read_text()
        document = json.loads(text)
        assert document["info"]["version"] == version
        # Nobody edits it by hand, and each operation has lines of its own.
        assert text == released_text(document)


def test_the_same_document_breaks_nothing(document: Document) -> None:
    assert breaking_changes(document, copy.deepcopy(document)) == []


def _lists(document: Document) -> Any:
    return document["paths"]["/lists"]


def _schema(document: Document, name: str) -> Any:
    return document["components"]["schemas"][name]


def _remove_path(document: Document) -> None:
    del document["paths"]["/imports"]


def _remove_operation(document: Document) -> None:
    del _lists(document)["post"]


def _rename_operation(document: Document) -> None:
    _lists(document)["post"]["operationId"] = "make_list"


def _remove_field_of_answer(document: Document) -> None:
    del _schema(document, "Channel")["properties"]["tagline"]


def _remove_field_of_body(document: Document) -> None:
    del _schema(document, "NewList")["properties"]["tagline"]


def _demand_field(document: Document) -> None:
    _schema(document, "NewList")["required"].append("tagline")


def _demand_new_field(document: Document) -> None:
    _schema(document, "NewList")["properties"]["language"] = {"type": "string"}
    _schema(document, "NewList")["required"].append("language")


def _leave_field_out(document: Document) -> None:
    _schema(document, "Channel")["required"].remove("tagline")


def _make_field_nullable(document: Document) -> None:
    _schema(document, "Channel")["properties"]["title"] = {
        "anyOf": [{"type": "string"}, {"type": "null"}]
    }


def _refuse_null(document: Document) -> None:
    _schema(document, "NewList")["properties"]["tagline"] = {"type": "string"}


def _change_type(document: Document) -> None:
    _schema(document, "Channel")["properties"]["id"] = {"type": "string"}


def _shorten(document: Document) -> None:
    _schema(document, "NewApiKey")["properties"]["name"]["maxLength"] = 100


def _narrow_enum(document: Document) -> None:
    _schema(document, "Tier")["enum"].remove("silver")


def _demand_parameter(document: Document) -> None:
    _lists(document)["get"]["parameters"].append(
        {"in": "query", "name": "sort", "required": True, "schema": {"type": "string"}}
    )


def _remove_parameter(document: Document) -> None:
    parameters = _lists(document)["get"]["parameters"]
    parameters[:] = [each for each in parameters if each.get("name") != "limit"]


def _close_to_strangers(document: Document) -> None:
    topup = document["paths"]["/auxilia/credits/topup"]["post"]
    topup["security"].remove({})


def _answer_otherwise(document: Document) -> None:
    answers = _lists(document)["get"]["responses"]
    answers["206"] = answers.pop("200")


def _refuse_a_kind_of_body(document: Document) -> None:
    body = document["paths"]["/lists/{list_id}/imports"]["post"]["requestBody"]
    del body["content"]["application/octet-stream"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_remove_path, "GET /imports: is gone"),
        (_remove_operation, "POST /lists: is gone"),
        (_rename_operation, "POST /lists: is called make_list, and was create_list"),
        (_remove_field_of_answer, "GET /lists: 200.data.items[].tagline is gone"),
        (_remove_field_of_body, "POST /lists: body.tagline is gone"),
        (_demand_field, "POST /lists: body.tagline is required"),
        (_demand_new_field, "POST /lists: body.language is required"),
        (_leave_field_out, "POST /lists: 200.data.tagline may be missing"),
        (_make_field_nullable, "POST /lists: 200.data.title may be null"),
        (_refuse_null, "POST /lists: body.tagline may not be null"),
        (_change_type, "POST /lists: 200.data.id may be string"),
        (_shorten, "POST /apikeys: body.name has the maxLength 100"),
        (_narrow_enum, "PATCH /lists/{list_id}/members/{user_id}: body.type may not be silver"),
        (_demand_parameter, "GET /lists: query.sort is required"),
        (_remove_parameter, "GET /lists: query.limit is gone"),
        (_close_to_strangers, "POST /auxilia/credits/topup: takes fewer credentials"),
        (_answer_otherwise, "GET /lists: never answers 200"),
        (
            _refuse_a_kind_of_body,
            "POST /lists/{list_id}/imports: body may not be application/octet-stream",
        ),
    ],
)
def test_a_breaking_change_is_found(
    document: Document, change: Callable[[Document], None], said: str
) -> None:
    change(document)
    assert said in breaking_changes(released(), document)


def _add_operation(document: Document) -> None:
    document["paths"]["/new"] = {"get": _lists(document)["get"] | {"operationId": "list_new"}}


def _add_optional_field(document: Document) -> None:
    _schema(document, "NewList")["properties"]["language"] = {"type": "string"}


def _add_field_of_answer(document: Document) -> None:
    _schema(document, "Channel")["properties"]["language"] = {"type": "string"}
    _schema(document, "Channel")["required"].append("language")


def _add_refusal(document: Document) -> None:
    _lists(document)["get"]["responses"]["418"] = {"description": "A teapot"}


def _widen(document: Document) -> None:
    _schema(document, "NewApiKey")["properties"]["name"]["maxLength"] = 300
    _schema(document, "Tier")["enum"].append("platinum")


def _add_optional_parameter(document: Document) -> None:
    _lists(document)["get"]["parameters"].append(
        {"in": "query", "name": "sort", "schema": {"type": "string"}}
    )


@pytest.mark.parametrize(
    "change",
    [
        _add_operation,
        _add_optional_field,
        _add_field_of_answer,
        _add_refusal,
        _widen,
        _add_optional_parameter,
    ],
)
def test_what_only_adds_breaks_nothing(
    document: Document, change: Callable[[Document], None]
) -> None:
    change(document)
    assert breaking_changes(released(), document) == []
