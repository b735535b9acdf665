"""Texts of mailing lists and fields that exceed their maximum length."""

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
OF_LIST = {"title": "A list", "slug": "a-list"}
OF_FIELD = {"key": "city", "label": "City", "type": "text"}


def texts_of(schema: str) -> list[str]:
    """Return the names of the properties that are texts, and not one of a few words."""
    properties = openapi_document()["components"]["schemas"][schema]["properties"]
    return [
        name
        for name, each in properties.items()
        for part in [each, *each.get("anyOf", ())]
        if part.get("type") == "string" and "enum" not in part
    ]


@pytest.mark.parametrize(
    ("method", "path", "schema", "right"),
    [
        ("POST", "/lists", "NewList", OF_LIST),
        ("POST", "/lists/{}/previews/sign_up", "ListChanges", {}),
        ("POST", "/fields", "NewField", OF_FIELD),
    ],
)
def test_too_long_text_of_a_list_or_field_is_rejected_before_its_content_is_scanned(
    *,
    client: httpx2.Client,
    list_id: int,
    method: str,
    path: str,
    schema: str,
    right: dict[str, Any],
) -> None:
    names = texts_of(schema)
    assert len(names) > 2
    for name in names:
        body = {**right, name: LONGEST_TEXT}
        refused = problem(
            client.request(method, path.format(list_id), json=body), 422, "body.invalid"
        )
        assert [each["field"] for each in refused["errors"]] == [f"body.{name}"]
        # A text below the general maximum is refused by the service, with a more specific code.
        reply = client.request(method, path.format(list_id), json={**right, name: LONG_TEXT})
        assert reply.json()["errors"][0]["field"] == f"body.{name}"
        assert reply.json()["code"] != "text.leads_away"


def test_texts_of_lists_and_fields_are_scanned_before_a_transaction_begins(
    stack: Stack, owner: Owner
) -> None:
    caller = Caller(owner.user_id, frozenset(), unrestricted=True)
    with stack.resources.unit_of_work() as uow:
        with pytest.raises(DomainError, match="strangers read this text"):
            lists.create_own_list(
                uow, caller, title="See 192.0.2.1", slug="a-list", fields={}, providers=()
            )
        with pytest.raises(DomainError, match="strangers read this text"):
            fields.create_field(
                uow, owner.user_id, type=FieldType.TEXT, key="a", label="See 192.0.2.1"
            )
        assert not uow.session.in_transaction()
