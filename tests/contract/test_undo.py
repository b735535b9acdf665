"""Taking an import back."""

from datetime import datetime, timedelta
from typing import Any

import httpx2

from tests.contract.bulk import (
    add,
    addresses,
    everybody,
    finished,
    imported,
    newest_job,
    of_addresses,
    sheet,
)
from tests.contract.replies import data
from tests.contract.segments import bulk_action
from tests.contract.subscribers import Reader, count, known_member, members
from tests.stack import Stack


def undo(client: httpx2.Client, import_id: int, **headers: str) -> httpx2.Response:
    return client.delete(f"/imports/{import_id}/members", headers=headers)


def test_whom_an_import_brought_is_gone_and_others_stay(
    client: httpx2.Client, list_id: int
) -> None:
    before, new = addresses(2), addresses(5)
    imported(client, list_id, of_addresses(*before))
    import_id = imported(client, list_id, of_addresses(*before, *new))["import_id"]
    assert count(client, list_id) == 7
    record = data(client.get(f"/imports/{import_id}"))
    until = datetime.fromisoformat(record["undo_until"])
    assert until - datetime.fromisoformat(record["created_at"]) == timedelta(days=90)
    assert data(undo(client, import_id)) == 5
    assert data(undo(client, import_id)) == 0
    assert set(everybody(client, list_id)) == set(before)
    assert count(client, list_id) == 2
    job = newest_job(client)
    assert (job["kind"], job["status"]) == ("members.undo", "succeeded")
    assert job["result"] == {"import_id": import_id, "undone": 5, "kept": 0}
    shown = data(client.get(f"/imports/{import_id}"))
    assert (shown["undone"], shown["kept"], bool(shown["undone_at"])) == (5, 0, True)


def test_members_that_were_there_are_as_they_were(client: httpx2.Client, list_id: int) -> None:
    kept, removed = addresses(2)
    file = sheet(["Email", "Name", "Tier"], [kept, "Old", "silver"], [removed, "Gone", ""])
    imported(client, list_id, file)
    user_id = known_member(client, list_id, removed)["user_id"]
    data(client.delete(f"/subscriptions/{list_id}/members/{user_id}"))
    before = {email: known_member(client, list_id, email) for email in (kept, removed)}
    file = sheet(["Email", "Name", "Tier"], [kept, "New", "gold"], [removed, "Back", "gold"])
    result = imported(client, list_id, file, on_existing="update")
    assert (result["added"], result["updated"]) == (1, 1)
    assert known_member(client, list_id, removed)["status"] == "active"
    assert data(undo(client, result["import_id"])) == 1
    assert {email: known_member(client, list_id, email) for email in before} == before
    path = f"/lists/{list_id}/members/{user_id}/history"
    actions = [each["action"] for each in data(client.get(path))["items"]]
    assert actions == ["import_undone", "imported", "removed", "imported"]


def test_who_asked_for_it_themselves_since_stays_with_their_consent(
    client: httpx2.Client, list_id: int, reader: Reader
) -> None:
    import_id = imported(client, list_id, of_addresses(reader.email, *addresses(1)))["import_id"]
    # They are on the list already, so this changes nothing that is shown.
    for _ in range(2):
        assert data(reader.client.post(f"/subscriptions/{list_id}/no-challenge")) == 0
    assert data(undo(client, import_id)) == 1
    assert set(everybody(client, list_id)) == {reader.email}
    told = data(client.get(f"/lists/{list_id}/members/{reader.user_id}/consent"))["items"]
    assert [each["how"] for each in told] == ["login", "import"]


def test_members_of_one_call_can_be_taken_back_too(client: httpx2.Client, list_id: int) -> None:
    data(add(client, list_id, *addresses(4)))
    [record] = data(client.get("/imports"))["items"]
    assert record["source"] == "members"
    assert data(undo(client, record["id"])) == 4
    assert members(client, list_id) == []


def test_a_dry_run_has_nothing_to_take_back(client: httpx2.Client, list_id: int) -> None:
    file = of_addresses(*addresses(2))
    import_id = imported(client, list_id, file, dry_run="1")["import_id"]
    imported(client, list_id, file)
    assert data(undo(client, import_id)) == 0
    assert count(client, list_id) == 2


def test_an_undo_leaves_what_other_imports_kept_for_theirs(
    stack: Stack, client: httpx2.Client, list_id: int
) -> None:
    def named(*people: tuple[str, str]) -> int:
        file = sheet(["Email", "Name"], *people)
        import_id: int = imported(client, list_id, file, on_existing="update")["import_id"]
        return import_id

    one, other = addresses(2)
    named((one, "Same"), (other, "First"))
    of_one = named((one, "Later"))
    of_other = named((other, "Same"))
    named((other, "Last"))
    for import_id in (of_other, of_one):
        data(undo(client, import_id))
    assert known_member(client, list_id, one)["name"] == "Same"


def previewed(client: httpx2.Client, import_id: int) -> dict[str, Any]:
    found: dict[str, Any] = data(client.get(f"/imports/{import_id}/undo"))
    assert found.pop("is_exact")
    return found


def test_members_whom_a_bulk_action_holds_are_taken_back_once_it_is_undone(
    client: httpx2.Client, list_id: int
) -> None:
    gone, *new = addresses(6)
    # One was a member before, and is one again by the import.
    imported(client, list_id, of_addresses(gone))
    user_id = known_member(client, list_id, gone)["user_id"]
    data(client.delete(f"/subscriptions/{list_id}/members/{user_id}"))
    before = known_member(client, list_id, gone)
    import_id = imported(client, list_id, of_addresses(gone, *new))["import_id"]
    some = {"any": [{"field": "email", "is": each} for each in (gone, new[0])]}
    job = data(bulk_action(client, list_id, "tag", filter=some, value="held"), 202)
    bulk_id = finished(client, job["id"])["result"]["bulk_id"]
    left = known_member(client, list_id, new[1])["user_id"]
    data(client.delete(f"/subscriptions/{list_id}/members/{left}"))

    holder = {"kind": "bulk_action", "id": bulk_id, "name": "tag", "members": 2}
    assert previewed(client, import_id) == {"undone": 3, "kept": 2, "left": 1, "held_by": [holder]}
    assert data(undo(client, import_id)) == 3
    assert set(everybody(client, list_id)) == {gone, new[0]}
    assert data(client.get(f"/imports/{import_id}"))["undo_until"] is not None
    assert previewed(client, import_id)["held_by"] == [holder]
    assert data(undo(client, import_id)) == 3

    data(client.delete(f"/bulk/{bulk_id}"))
    assert previewed(client, import_id) == {"undone": 2, "kept": 0, "left": 1, "held_by": []}
    assert data(undo(client, import_id)) == 5
    assert everybody(client, list_id) == {}
    assert known_member(client, list_id, gone) == before


def test_a_later_import_is_named_as_what_holds_a_member(
    client: httpx2.Client, list_id: int
) -> None:
    [one] = addresses(1)
    first = imported(client, list_id, of_addresses(one))["import_id"]
    file = sheet(["Email", "Name"], [one, "Ada"])
    later = imported(client, list_id, file, "later.csv", on_existing="update")["import_id"]
    holder = {"kind": "import", "id": later, "name": "later.csv", "members": 1}
    assert previewed(client, first) == {"undone": 0, "kept": 1, "left": 0, "held_by": [holder]}
    assert [data(undo(client, each)) for each in (first, later, first)] == [0, 0, 1]
    assert everybody(client, list_id) == {}
