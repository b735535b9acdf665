"""The roster of a list: everybody who gets its mail, for who sends it."""

from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx

from services.mailing.export_sheets import ExportKind
from services.mailing.exports import EXPORT_JOBS
from tests.contract.bulk import (
    add,
    addresses,
    everybody,
    export,
    unpacked,
)
from tests.contract.replies import data, problem
from tests.contract.subscribers import (
    Reader,
    known_member,
    new_address,
    new_list,
)
from tests.stack import Stack

ROSTER = [
    *("email", "name", "user_id", "trace_id", "one_click_url"),
    *("list_id_header", "list_unsubscribe_header", "list_unsubscribe_post_header"),
]


def test_the_roster_has_those_who_get_mail_and_no_address_is_altered(
    client: httpx.Client, sender: httpx.Client, make_reader: Any, list_id: int
) -> None:
    odd, plain = "=odd+one@example.com", new_address()
    people = [{"email": odd, "name": "=cmd"}, {"email": plain, "name": "Ada"}]
    data(add(client, list_id, *people))
    make_reader().joins(list_id).leaves(list_id)
    make_reader().joins(list_id).wants_mail(list_id, False)
    job = data(export(sender, list_id, "delivery"))
    assert (job["kind"], job["result"]["rows"]) == (EXPORT_JOBS[ExportKind.DELIVERY].name, 2)
    rows = unpacked(job["result"]["url"])
    assert list(rows[0]) == ROSTER
    assert [(row["email"], row["name"]) for row in rows] == [(odd, "'=cmd"), (plain, "Ada")]


def test_a_rosters_addresses_and_headers_are_ready_to_use(
    stack: Stack, client: httpx.Client, sender: httpx.Client, list_id: int
) -> None:
    data(add(client, list_id, new_address()))
    slug = data(client.get(f"/lists/{list_id}"))["slug"]
    [row] = unpacked(data(export(sender, list_id, "delivery"))["result"]["url"])
    base = stack.settings().public_base
    assert row["list_id_header"] == f"<{slug}.{urlsplit(base).hostname}>"
    assert row["list_unsubscribe_post_header"] == "List-Unsubscribe=One-Click"
    one_click = urlsplit(row["one_click_url"])
    assert one_click.path == f"/subscriptions/{list_id}/delete"
    assert dict(parse_qsl(one_click.query)) == {"trace_id": row["trace_id"]}
    unsubscribe = row["list_unsubscribe_header"]
    assert unsubscribe.startswith(f"<{base}/unsubscribe?trace_id=")
    assert unsubscribe.endswith(">")
    assert httpx.get(unsubscribe[1:-1]).status_code == 200


def test_a_rosters_trace_ids_stand_for_their_person_alone(
    client: httpx.Client, sender: httpx.Client, stranger: httpx.Client, list_id: int
) -> None:
    data(add(client, list_id, *addresses(4)))
    rows = unpacked(data(export(sender, list_id, "delivery"))["result"]["url"])
    leaves, one_click, header, stays = rows
    path = f"/subscriptions/{list_id}"
    assert data(stranger.delete(path, params={"trace_id": leaves["trace_id"]})) == 1
    body = {"List-Unsubscribe": "One-Click"}
    assert data(httpx.post(one_click["one_click_url"], data=body)) == 1
    # A mail client posts to the address in the header, which for people is a page.
    assert httpx.post(header["list_unsubscribe_header"][1:-1], data=body).status_code == 200
    standing = {row["email"]: known_member(client, list_id, row["email"]) for row in rows}
    assert standing[leaves["email"]]["status"] == "unsubscribed"
    for row in (one_click, header):
        shown = standing[row["email"]]
        assert shown["status"] != "active" or not shown["email_enabled"]
    assert standing[stays["email"]]["status"] == "active"
    left = unpacked(data(export(sender, list_id, "delivery"))["result"]["url"])
    assert [row["email"] for row in left] == [stays["email"]]
    other = new_list(client)["id"]
    refused = stranger.delete(f"/subscriptions/{other}", params={"trace_id": stays["trace_id"]})
    problem(refused, 403, "trace.invalid")


def test_whoever_opted_out_is_in_no_roster_whatever_their_record_says(
    stack: Stack, client: httpx.Client, sender: httpx.Client, reader: Reader, list_id: int
) -> None:
    reader.joins(list_id).leaves(list_id)
    stack.query(
        "UPDATE subscriptions SET status = 'active', email_enabled = true"
        " WHERE list_id = %s AND user_id = %s",
        list_id,
        reader.user_id,
    )
    assert [each["email"] for each in everybody(client, list_id).values()] == [reader.email]
    assert data(export(sender, list_id, "delivery"))["result"]["rows"] == 0
