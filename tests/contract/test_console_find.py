"""Tests of the console's search for pages, lists and members, which Ctrl-K opens on each page."""

import re
import unicodedata

from devstack.harness.stack import Stack
from tests.support.http.replies import data
from tests.support.imports.bulk import build_address_file, build_csv, import_members_file
from tests.support.lists.segments import put_member
from tests.support.lists.subscribers import new_list
from tests.support.people.consoles import OwnerAtConsole, at_console, calls_of


def read_results(console: OwnerAtConsole, words: str) -> str:
    """Return the HTML of the results of a search."""
    text = console.see("/console/find", q=words)
    match = re.search(r'<div id="found">(.*?)</div>', text, re.DOTALL)
    assert match
    return match[1]


def read_rows(console: OwnerAtConsole, words: str) -> list[str]:
    """Return the text of each result, without the links that search the members of one list."""
    results = read_results(console, words).partition("<h2>")[0]
    rows = re.findall(r"<li>(.*?)</li>", results, re.DOTALL)
    return [" ".join(re.sub(r"<[^>]+>", "", row).split()) for row in rows]


def test_console_search_shows_the_api_call_that_searches_the_members_of_a_list(
    console: OwnerAtConsole,
) -> None:
    mailing_list = new_list(console.api, title="The Daily Demo")
    [call] = calls_of(console.see("/console/find", q="daily"))
    assert (call.method, call.path) == ("POST", f"/lists/{mailing_list['id']}/members/search")
    assert call.body == {
        "filter": {"any": [{"field": name, "contains": "daily"} for name in ("email", "name")]}
    }


def test_console_search_finds_pages_by_name(console: OwnerAtConsole) -> None:
    assert "/console/developers/webhooks" in read_results(console, "webhook")
    assert "/console/operators" not in read_results(console, "maintenance")


def test_console_search_finds_a_list_by_any_part_of_title_or_slug(console: OwnerAtConsole) -> None:
    mailing_list = new_list(console.api, title="The Daily Demo")
    new_list(console.api, title="Another thing")
    assert read_rows(console, "DAILY") == ["The Daily Demo list"]
    assert read_rows(console, mailing_list["slug"][2:]) == ["The Daily Demo list"]
    assert "Nothing found" in read_results(console, "weekly")


def test_console_search_finds_members_of_all_lists_by_any_part_of_name_or_address(
    console: OwnerAtConsole,
) -> None:
    tea_list_id = new_list(console.api, title="Tea")["id"]
    coffee_list_id = new_list(console.api, title="Coffee")["id"]
    put_member(console.api, tea_list_id, "ada.lane@example.com", name="Ada Müller")
    put_member(
        console.api,
        coffee_list_id,
        "ben_x@example.com",
        name=unicodedata.normalize("NFD", "Ben Müller"),
    )
    ada_row = "ada.lane@example.com Ada Müller, on Tea"
    ben_row = unicodedata.normalize("NFD", "ben_x@example.com Ben Müller, on Coffee")
    for words in (
        "müller",
        "MÜLLER",
        unicodedata.normalize("NFD", "Müller"),
        " üll ",
        "ü"[:1] + "l",
    ):
        assert read_rows(console, words) == [ben_row, ada_row], words
    assert read_rows(console, "a.LANE@ex") == [ada_row]
    assert read_rows(console, "en_x") == [ben_row]


def test_console_search_shows_a_person_on_several_lists_in_one_row_with_a_link_to_each_list(
    console: OwnerAtConsole,
) -> None:
    list_ids = [new_list(console.api, title=f"List {number}")["id"] for number in range(5)]
    for list_id in list_ids:
        name = "Ada Quandt" if list_id == list_ids[1] else "Ada"
        user_id = put_member(console.api, list_id, "ada@example.com", name=name)["user_id"]
    data(console.api.delete(f"/subscriptions/{list_ids[3]}/members/{user_id}"))
    data(console.api.delete(f"/lists/{list_ids[4]}"))
    # The list with the matching name comes first.
    assert read_rows(console, "quandt") == ["ada@example.com Ada Quandt, on List 1, List 2, List 0"]
    links = re.findall(r'href="[^"]*(/console/[^"]+)"', read_results(console, "quandt"))
    assert links == [
        f"/console/lists/{list_ids[index]}/members/{user_id}" for index in (1, 1, 2, 0)
    ]
    for list_id in list_ids[:3]:
        data(console.api.delete(f"/subscriptions/{list_id}/members/{user_id}"))
    assert read_rows(console, "ada@") == []


def test_console_search_finds_nothing_of_other_owners_or_archived_lists(
    console: OwnerAtConsole, stack: Stack
) -> None:
    own_list_id = new_list(console.api, title="Tea")["id"]
    put_member(console.api, own_list_id, "shared@quandt.example", name="Known")
    archived_list_id = new_list(console.api, title="Ended tale")["id"]
    put_member(console.api, archived_list_id, "tale@quandt.example")
    data(console.api.delete(f"/lists/{archived_list_id}"))
    with at_console(stack) as other_console:
        other_list_id = new_list(other_console.api, title="Secret tale")["id"]
        put_member(other_console.api, other_list_id, "shared@quandt.example", name="Confidential")
        assert read_rows(other_console, "confidential") == [
            "shared@quandt.example Confidential, on Secret tale"
        ]
        assert read_rows(other_console, "tale") == ["Secret tale list"]
    assert read_rows(console, "quandt") == ["shared@quandt.example Known, on Tea"]
    for words in ("confidential", "tale"):
        assert read_rows(console, words) == [], words


def test_console_search_hides_a_person_as_soon_as_the_erasure_begins(
    console: OwnerAtConsole, stack: Stack
) -> None:
    list_id = new_list(console.api)["id"]
    user_id = put_member(console.api, list_id, "ada@quandt.example", name="Ada")["user_id"]
    assert len(read_rows(console, "quandt")) == 1
    # The member record keeps its address until the erasure job ends.
    stack.query("UPDATE users SET erased_at = now() WHERE id = %s", user_id)
    assert read_rows(console, "quandt") == []


def test_console_search_for_wildcards_or_overlong_text_finds_nothing(
    console: OwnerAtConsole,
) -> None:
    list_id = new_list(console.api, title="The Daily Demo")["id"]
    put_member(console.api, list_id, "ada@example.com", name="Ada")
    hostile_texts = (
        "%",
        "%%",
        "a%a",
        "__",
        "a_a",
        "a",
        "",
        "\\\\",
        "q\0q",
        "@@@",
        "'; DROP TABLE lists; --",
    )
    for words in (*hostile_texts, "a" * 10_000, "%" * 10_000, "\U0001f600" * 3_000):
        assert read_rows(console, words) == [], words
    put_member(console.api, list_id, "per@example.com", name="100%_sure")
    assert read_rows(console, "0%_s") == ["per@example.com 100%_sure, on The Daily Demo"]


def test_console_search_with_many_matches_shows_ten_members_and_links_to_their_lists(
    console: OwnerAtConsole,
) -> None:
    for title, member_count in (("Tea", 8), ("Coffee", 3)):
        rows = [
            [f"{title.lower()}{number}@example.com", "Ada Quandt"] for number in range(member_count)
        ]
        import_members_file(
            console.api,
            new_list(console.api, title=title)["id"],
            build_csv(["Email", "Name"], *rows),
        )
    import_members_file(
        console.api, new_list(console.api, title="Water")["id"], build_address_file("a@example.com")
    )
    results = read_results(console, "quandt")
    assert len(read_rows(console, "quandt")) == 10
    links = re.findall(r"<a [^>]*members\?q=quandt[^>]*>(.*?)</a>", results)
    texts = {re.sub(r"<[^>]+>", "", link) for link in links}
    assert texts == {"Search the members of Tea", "Search the members of Coffee"}
    assert "Search the members" not in read_results(console, "tea1@")
