"""The finder of lists and members, as a page."""

import re
from collections.abc import Iterator

import pytest

from tests.consoles import OwnerAtConsole, at_console
from tests.contract.bulk import imported, of_addresses
from tests.contract.replies import data
from tests.contract.subscribers import new_list
from tests.stack import Stack


@pytest.fixture
def owner(stack: Stack) -> Iterator[OwnerAtConsole]:
    with at_console(stack) as found:
        yield found


def found(owner: OwnerAtConsole, words: str) -> list[str]:
    text = owner.see("/console/find", q=words)
    [part] = re.findall(r'<div id="found">(.*?)</div>', text, re.DOTALL)
    return [re.sub(r"<[^>]+>", "", each) for each in re.findall(r"<a [^>]*>(.*?)</a>", part)]


def test_a_list_is_found_by_any_part_of_its_title_or_slug(owner: OwnerAtConsole) -> None:
    made = new_list(owner.api, title="The Daily Demo")
    new_list(owner.api, title="Another thing")
    assert found(owner, "DAILY") == ["The Daily Demo"]
    assert found(owner, made["slug"][2:]) == ["The Daily Demo"]
    assert found(owner, "100%") == found(owner, "T") == found(owner, "") == []


def test_a_member_is_found_on_each_list_by_the_beginning_of_the_address(
    owner: OwnerAtConsole,
) -> None:
    first, second = new_list(owner.api, title="First"), new_list(owner.api, title="Second")
    imported(owner.api, first["id"], of_addresses("ada@example.com", "ada_b@example.com"))
    imported(owner.api, second["id"], of_addresses("ada@example.com", "bob@example.com"))
    assert found(owner, "Ada@") == ["ada@example.com"] * 2
    assert found(owner, "ada_") == ["ada_b@example.com"]
    assert found(owner, "da@ex") == []
    user_id = data(owner.api.get(f"/lists/{first['id']}/members/ada@example.com"))["user_id"]
    data(owner.api.delete(f"/subscriptions/{first['id']}/members/{user_id}"))
    assert found(owner, "ada@") == ["ada@example.com"]


def test_nothing_of_other_owners_and_of_archived_lists_is_found(
    owner: OwnerAtConsole, stack: Stack
) -> None:
    ended = new_list(owner.api, title="Ended tale")
    imported(owner.api, ended["id"], of_addresses("tale@example.com"))
    data(owner.api.delete(f"/lists/{ended['id']}"))
    with at_console(stack) as other:
        theirs = new_list(other.api, title="Tale of others")
        imported(other.api, theirs["id"], of_addresses("tale@example.com"))
        assert found(other, "tale") == ["Tale of others", "tale@example.com"]
    assert found(owner, "tale") == []


def test_a_search_that_nobody_types_is_answered_too(owner: OwnerAtConsole) -> None:
    for words in ("x" * 5_000, "a\0b", "\\\\", "'; DROP TABLE lists; --", "é" * 300):
        assert found(owner, words) == []
