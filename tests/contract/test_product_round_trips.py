"""What comes in from another product goes out whole, and the same comes in again."""

import gzip
from typing import Any

import httpx
import pytest

from core.ids import random_hash_id
from tests.contract.bulk import everybody, imported
from tests.contract.replies import data
from tests.contract.subscribers import new_list
from tests.contract.test_chosen_exports import file_of
from tests.product_files import PRODUCT_FILES
from tests.stack import Stack

# What a member is to the owner of a list; another record has ids and moments of its own.
SAME = ("email", "name", "status", "type", "paid_expiry", "email_enabled", "joined_at", "tags")


@pytest.mark.parametrize("form", ["csv", "jsonl"])
@pytest.mark.parametrize("product", PRODUCT_FILES)
def test_a_products_file_is_the_same_after_our_export_and_another_import(
    stack: Stack, client: httpx.Client, list_id: int, product: str, form: str
) -> None:
    content = PRODUCT_FILES[product].format(d=f"{random_hash_id(8)}.example.com")
    imported(client, list_id, content.encode(), create_fields="1")
    first = exported(client, list_id, form)
    with stack.client(stack.new_owner().key) as another:
        there = new_list(another)["id"]
        result = imported(another, there, first, f"members.{form}", create_fields="1")
        assert result["ignored_columns"] == ["source", "user_id", "consent_claimed_by"]
        before, after = shown(client, list_id), shown(another, there)
        assert set(before) == set(after)
        for email, member in before.items():
            assert after[email] == member


def exported(client: httpx.Client, list_id: int, form: str) -> bytes:
    reply = httpx.get(file_of(client, list_id, format=form), timeout=30.0)
    return gzip.decompress(reply.content)


def shown(client: httpx.Client, list_id: int) -> dict[str, Any]:
    """All that the owner knows of each member, by their addresses."""
    return {
        email: {
            **{name: member[name] for name in SAME},
            "fields": {key: value for key, value in member["fields"].items() if value is not None},
            "consent": consent(client, list_id, member["user_id"]),
        }
        for email, member in everybody(client, list_id).items()
    }


def consent(client: httpx.Client, list_id: int, user_id: int) -> set[tuple[str, ...]]:
    """What other products claimed; where the claim came from last is another matter."""
    entries = data(client.get(f"/lists/{list_id}/members/{user_id}/consent"))["items"]
    names = ("at", "ip", "url", "wording")
    return {tuple(str(each[name]) for name in names) for each in entries if each["ip"]}
