"""Tests that Pressroom rejects mailing lists and fields whose texts are too long or misleading."""

from typing import Any

import httpx2
import pytest

from core.errors import DomainError
from devstack.harness.stack import Owner, Stack
from models import FieldType
from services.access.caller import Caller
from services.subscriptions import fields, lists
from tests.support.http.openapi import openapi_document
from tests.support.http.replies import problem

# The search for addresses in a text takes longest on digits.
LONGEST_TEXT = "1" * 1_900_000
LONG_TEXT = "1" * 9_000
# Valid bodies of the requests that create a mailing list and a field.
NEW_LIST_BODY = {"title": "A list", "slug": "a-list"}
NEW_FIELD_BODY = {"key": "city", "label": "City", "type": "text"}


def find_text_properties(schema: str) -> list[str]:
    """Return the names of the string properties of a schema, except properties with an enum."""
    properties = openapi_document()["components"]["schemas"][schema]["properties"]
    return [
        name
        for name, definition in properties.items()
        for variant in [definition, *definition.get("anyOf", ())]
        if variant.get("type") == "string" and "enum" not in variant
    ]


@pytest.mark.parametrize(
    ("method", "path", "schema", "valid_body"),
    [
        ("POST", "/lists", "NewList", NEW_LIST_BODY),
        ("POST", "/lists/{}/previews/sign_up", "ListChanges", {}),
        ("POST", "/fields", "NewField", NEW_FIELD_BODY),
    ],
)
def test_too_long_text_of_a_list_or_field_is_rejected_before_its_content_is_scanned(
    *,
    client: httpx2.Client,
    list_id: int,
    method: str,
    path: str,
    schema: str,
    valid_body: dict[str, Any],
) -> None:
    names = find_text_properties(schema)
    assert len(names) > 2
    for name in names:
        body = {**valid_body, name: LONGEST_TEXT}
        error = problem(
            client.request(method, path.format(list_id), json=body), 422, "body.invalid"
        )
        assert [each["field"] for each in error["errors"]] == [f"body.{name}"]
        # A request may contain texts as long as ``LONG_TEXT``, but the tested property must be
        # shorter. Pressroom must check the length before it searches the text for addresses,
        # because an address in the text would cause the error `text.leads_away`.
        reply = client.request(method, path.format(list_id), json={**valid_body, name: LONG_TEXT})
        assert reply.json()["errors"][0]["field"] == f"body.{name}"
        assert reply.json()["code"] != "text.leads_away"


def test_texts_of_lists_and_fields_are_scanned_before_a_transaction_begins(
    stack: Stack, owner: Owner
) -> None:
    caller = Caller(owner.account_id, owner.person_id, frozenset(), unrestricted=True)
    with stack.resources.unit_of_work() as uow:
        with pytest.raises(DomainError, match="strangers read this text"):
            lists.create_own_list(
                uow, caller, title="See 192.0.2.1", slug="a-list", fields={}, providers=()
            )
        with pytest.raises(DomainError, match="strangers read this text"):
            fields.create_field(
                uow, owner.account_id, type=FieldType.TEXT, key="a", label="See 192.0.2.1"
            )
        assert not uow.session.in_transaction()
