"""Tests that a search in all lists of an owner limits its duration and the number of results."""

from collections.abc import Callable

import httpx2
import pytest
from sqlalchemy import func, select

from core.scopes import Scope
from devstack.harness.stack import Owner, Stack
from services.access.caller import Caller
from services.subscriptions.filters import owner_search, searching
from services.subscriptions.filters.owner_search import SearchResult
from tests.support.imports.bulk import build_csv, import_members_file
from tests.support.lists.subscribers import new_list

Search = Callable[[str], SearchResult]


@pytest.fixture
def search(stack: Stack, owner: Owner, client: httpx2.Client) -> Search:
    """A function that searches two lists of 40 members each. Ada is the first member of both."""
    for title in ("Tea", "Coffee"):
        people = [["ada@example.com", "Ada Wu"]]
        people += [[f"{title.lower()}{number}@example.com", "Ben"] for number in range(39)]
        import_members_file(
            client, new_list(client, title=title)["id"], build_csv(["Email", "Name"], *people)
        )

    def search_lists_and_members(words: str) -> SearchResult:
        caller = Caller(
            account_id=owner.account_id,
            person_id=owner.person_id,
            scopes=frozenset(Scope),
            unrestricted=True,
        )
        with stack.resources.unit_of_work() as uow:
            return owner_search.search_lists_and_members(uow, caller, words)

    return search_lists_and_members


def list_addresses(result: SearchResult) -> list[str]:
    return [member.email for member in result.members]


def test_search_finds_old_members_of_a_large_account_with_the_trigram_index(
    search: Search, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner_search, "MAX_SHORT_SCAN_MEMBERS", 5)
    monkeypatch.setattr(owner_search, "_MAX_LONG_SCAN_MEMBERS", 5)
    result = search("da wu")
    assert (list_addresses(result), result.is_complete) == (["ada@example.com"], True)
    assert [each.title for each in result.members[0].lists] == ["Coffee", "Tea"]


def test_search_for_text_outside_the_index_is_incomplete_in_a_large_account(
    search: Search, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner_search, "MAX_SHORT_SCAN_MEMBERS", 5)
    monkeypatch.setattr(owner_search, "_MAX_LONG_SCAN_MEMBERS", 30)
    for words in ("wu", "@@@"):
        result = search(words)
        assert (list_addresses(result), result.is_complete) == ([], False), words
    # The address index finds addresses by their first two characters.
    assert list_addresses(search("ad")) == ["ada@example.com"]
    monkeypatch.setattr(owner_search, "_MAX_LONG_SCAN_MEMBERS", 100)
    result = search("wu")
    assert (list_addresses(result), result.is_complete) == (["ada@example.com"], True)


def test_search_is_incomplete_if_the_index_search_takes_too_long(
    search: Search, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner_search, "MAX_SHORT_SCAN_MEMBERS", 5)
    slow_query = select(func.pg_sleep(60), func.now())
    execute_in_time = searching.execute_in_time
    monkeypatch.setattr(
        owner_search,
        "execute_in_time",
        lambda uow, _query, seconds: execute_in_time(uow, slow_query, seconds),
    )
    result = search("a@exam")
    assert (list_addresses(result), result.is_complete) == ([], False)
    # The address query finds a complete address, so the slow index search isn't needed.
    result = search("Ada@example.com")
    assert (list_addresses(result), result.is_complete) == (["ada@example.com"], True)


def test_search_lists_a_limited_number_of_lists_per_member(
    search: Search, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner_search, "MAX_LISTS_PER_MEMBER", 1)
    [member] = search("ada wu").members
    assert ([each.title for each in member.lists], member.has_more_lists) == (["Coffee"], True)
