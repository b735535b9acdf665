"""Tests of whitespace and invisible characters in the e-mail addresses that a client sends."""

import secrets
from collections.abc import Callable
from urllib.parse import quote

import httpx2
import pytest

from tests.support.http.replies import data, problem
from tests.support.imports.bulk import add, build_address_file, import_members_file
from tests.support.lists.subscribers import fetch_members, subscribe

# Formats that put a space, no-break space, zero-width space, byte-order mark or line break before
# or after an address.
PADDED_FORMATS = ("{} ", "\u00a0{}", "{}\u200b", "\ufeff{}", " {}\n")


def _sign_up(client: httpx2.Client, list_id: int, *addresses: str) -> None:
    for each in addresses:
        assert data(subscribe(client, list_id, each)) == 1


def _submit(client: httpx2.Client, list_id: int, *addresses: str) -> None:
    for each in addresses:
        reply = client.post(f"/subscriptions/{list_id}", data={"email": each})
        assert reply.status_code == 303, reply.text


def _add(client: httpx2.Client, list_id: int, *addresses: str) -> None:
    assert data(add(client, list_id, *addresses, prefer="wait=30")) == len(addresses)


def _put(client: httpx2.Client, list_id: int, *addresses: str) -> None:
    for each in addresses:
        data(client.put(f"/lists/{list_id}/members/{quote(each)}", json={}))


def _import(client: httpx2.Client, list_id: int, *addresses: str) -> None:
    assert import_members_file(client, list_id, build_address_file(*addresses))["added"] == len(
        addresses
    )


@pytest.mark.parametrize("add_addresses", [_sign_up, _submit, _add, _put, _import])
def test_every_way_to_add_a_member_strips_invisible_characters_around_the_address(
    client: httpx2.Client,
    stranger: httpx2.Client,
    list_id: int,
    add_addresses: Callable[..., None],
) -> None:
    name = secrets.token_hex(6)
    plain_addresses = [f"{name}.{number}@example.com" for number in range(len(PADDED_FORMATS))]
    padded_addresses = [
        padded_format.format(address)
        for padded_format, address in zip(PADDED_FORMATS, plain_addresses, strict=True)
    ]

    add_addresses(
        stranger if add_addresses in (_sign_up, _submit) else client, list_id, *padded_addresses
    )

    assert sorted(each["email"] for each in fetch_members(client, list_id)) == plain_addresses
    assert [
        each["email"] for each in fetch_members(client, list_id, email=padded_addresses[0])
    ] == plain_addresses[:1]


def test_deny_list_strips_invisible_characters_around_entries(client: httpx2.Client) -> None:
    body = {
        "addresses": [
            padded_format.format(f"a{number}@example.org")
            for number, padded_format in enumerate(PADDED_FORMATS)
        ],
        "domains": [
            padded_format.format(f"d{number}.example.org")
            for number, padded_format in enumerate(PADDED_FORMATS)
        ],
    }
    data(client.put("/deny-list", json=body))

    assert data(client.get("/deny-list")) == {
        "addresses": [f"a{number}@example.org" for number in range(len(PADDED_FORMATS))],
        "domains": [f"d{number}.example.org" for number in range(len(PADDED_FORMATS))],
        "erased": 0,
    }


@pytest.mark.parametrize(
    "malformed_address", ["a b@example.com", "a\u200bb@example.com", "a@exam\ufe0fple.com"]
)
def test_address_with_an_inner_invisible_character_is_rejected(
    client: httpx2.Client, list_id: int, malformed_address: str
) -> None:
    problem(subscribe(client, list_id, malformed_address), 422, "body.invalid")
    path = f"/lists/{list_id}/members/{quote(malformed_address)}"
    problem(client.put(path, json={}), 400, "request.invalid")
