"""Tags of a list: words without regard to case, made as members get them."""

from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest

from tests.contract.replies import data, problem
from tests.contract.segments import put, tag_id, tag_names
from tests.contract.subscribers import members, new_address, new_list
from tests.stack import Stack


@pytest.fixture
def email(client: httpx2.Client, list_id: int) -> str:
    """A member's."""
    address = new_address()
    put(client, list_id, address)
    return address


def change(client: httpx2.Client, list_id: int | str, email: str, **values: object) -> list[str]:
    reply = client.patch(f"/lists/{list_id}/members/{email}", json=values)
    found: list[str] = data(reply)["tags"]
    return found


def test_tags_are_set_whole_added_and_removed(
    client: httpx2.Client, list_id: int, email: str
) -> None:
    assert change(client, list_id, email, tags=["VIP", "press"]) == ["press", "VIP"]
    assert change(client, list_id, email, add_tags=["Spring fair"]) == [
        "press",
        "Spring fair",
        "VIP",
    ]
    assert change(client, list_id, email, remove_tags=["PRESS", "unknown"]) == [
        "Spring fair",
        "VIP",
    ]
    assert change(client, list_id, email, name="Ada") == ["Spring fair", "VIP"]
    assert members(client, list_id, email=email)[0]["tags"] == ["Spring fair", "VIP"]
    assert change(client, list_id, email, tags=["x"], add_tags=["y"], remove_tags=["X"]) == ["y"]
    assert change(client, list_id, email, tags=[]) == []
    # A tag that was to be removed is not made.
    assert set(tag_names(client, list_id)) == {"VIP", "press", "Spring fair", "x", "y"}


def test_a_tag_is_kept_as_it_was_first_written(
    client: httpx2.Client, list_id: int, email: str
) -> None:
    assert change(client, list_id, email, tags=[" Straße ", "STRASSE"]) == ["Straße"]
    assert change(client, list_id, email, add_tags=["strasse"]) == ["Straße"]
    assert tag_names(client, list_id) == ["Straße"]


def test_what_is_no_tag_is_refused(client: httpx2.Client, list_id: int, email: str) -> None:
    for wrong in ["", " ", "a,b", "x" * 41, "a\nb", "a\0b", 5, None]:
        for name in ("tags", "add_tags", "remove_tags"):
            body = {name: ["fine", wrong]}
            reply = client.patch(f"/lists/{list_id}/members/{email}", json=body)
            error = problem(reply, 422, "body.invalid")
            assert error["errors"][0]["field"] == f"body.{name}[1]"
        assert tag_names(client, list_id) == []


def test_a_member_has_a_bounded_number_of_tags(
    client: httpx2.Client, list_id: int, email: str
) -> None:
    path = f"/lists/{list_id}/members/{email}"
    many = [f"tag {number}" for number in range(100)]
    assert len(change(client, list_id, email, tags=many)) == 100
    problem(client.patch(path, json={"add_tags": ["more"]}), 422, "tag.too_many_of_member")
    problem(client.patch(path, json={"tags": [*many, "more"]}), 422, "body.invalid")
    assert "more" not in tag_names(client, list_id)
    assert len(change(client, list_id, email, add_tags=["TAG 7"])) == 100


def test_a_list_has_a_bounded_number_of_tags(
    stack: Stack, client: httpx2.Client, list_id: int, email: str
) -> None:
    stack.query(
        "INSERT INTO tags (list_id, name, folded)"
        " SELECT %s, 't' || n, 't' || n FROM generate_series(1, 9999) AS n",
        list_id,
    )
    path = f"/lists/{list_id}/members/{email}"
    problem(client.patch(path, json={"tags": ["one", "two"]}), 409, "tag.too_many")
    assert change(client, list_id, email, tags=["one", "T9999"]) == ["one", "t9999"]
    problem(client.patch(path, json={"tags": ["two"]}), 409, "tag.too_many")


def test_a_tag_is_renamed_for_all_and_no_member_is_rewritten(
    stack: Stack, client: httpx2.Client, list_id: int, email: str
) -> None:
    change(client, list_id, email, tags=["VIP", "press"])
    rows = "SELECT xmin, ctid, * FROM subscriptions WHERE list_id = %s"
    before = stack.query(rows, list_id)
    path = f"/lists/{list_id}/tags/{tag_id(client, list_id, 'VIP')}"
    assert data(client.patch(path, json={"name": "Patrons"}))["name"] == "Patrons"
    assert members(client, list_id, email=email)[0]["tags"] == ["Patrons", "press"]
    problem(client.patch(path, json={"name": "PRESS"}), 409, "tag.name_taken")
    assert data(client.patch(path, json={"name": "patrons"}))["name"] == "patrons"
    assert stack.query(rows, list_id) == before


def test_a_deleted_tag_is_on_no_member_and_comes_back_as_another(
    client: httpx2.Client, list_id: int, email: str
) -> None:
    other = new_address()
    put(client, list_id, other, tags=["VIP"])
    change(client, list_id, email, tags=["VIP", "press"])
    path = f"/lists/{list_id}/tags/{tag_id(client, list_id, 'VIP')}"
    assert data(client.delete(path)) == 1
    problem(client.delete(path), 404, "tag.not_found")
    assert tag_names(client, list_id) == ["press"]
    assert change(client, list_id, email, add_tags=["vip"]) == ["press", "vip"]
    assert members(client, list_id, email=other)[0]["tags"] == []


def test_one_tag_comes_of_many_who_make_it_at_once(client: httpx2.Client, list_id: int) -> None:
    names = [f"tag {number}" for number in range(20)]
    people = [new_address() for _ in range(6)]
    for each in people:
        put(client, list_id, each)

    def tag(place: int) -> list[str]:
        # Each in another order and spelling.
        mixed = [*names[place:], *names[:place]]
        spelt = [each.upper() if place % 2 else each for each in mixed]
        return change(client, list_id, people[place], tags=spelt)

    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(tag, range(6)))
    assert len(tag_names(client, list_id)) == len(names)
    assert found == [found[0]] * 6


def test_tags_belong_to_one_list(
    client: httpx2.Client, neighbour: httpx2.Client, list_id: int, email: str
) -> None:
    change(client, list_id, email, tags=["VIP"])
    own, other = tag_id(client, list_id, "VIP"), new_list(client)["id"]
    theirs = new_list(neighbour)["id"]
    for caller, lists in ((client, [other]), (neighbour, [theirs])):
        for each in lists:
            path = f"/lists/{each}/tags/{own}"
            problem(caller.patch(path, json={"name": "x"}), 404, "tag.not_found")
            problem(caller.delete(path), 404, "tag.not_found")
            assert tag_names(caller, each) == []
    problem(neighbour.get(f"/lists/{list_id}/tags"), 403, "list.not_owner")
    problem(neighbour.delete(f"/lists/{list_id}/tags/{own}"), 403, "list.not_owner")
    assert tag_names(client, list_id) == ["VIP"]
