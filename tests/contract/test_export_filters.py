"""Tests of list exports: filters, segments, and the CSV and JSON Lines formats."""

import codecs
import gzip
import json
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx2

from devstack.harness.stack import Stack
from services.subscriptions.export_sheets import ExportKind
from services.subscriptions.exports import EXPORT_JOBS
from tests.support.http.replies import data, problem
from tests.support.imports.bulk import (
    add,
    addresses,
    emails_of,
    everybody,
    export,
    exported,
    file_of,
    imported,
    unpacked,
)
from tests.support.lists.segments import VIP, new_field, new_segment, set_member, some_members
from tests.support.lists.subscribers import Reader, known_member, new_address, new_list


def objects_in(url: str) -> list[dict[str, Any]]:
    reply = httpx2.get(url, timeout=30.0)
    assert reply.status_code == 200, reply.text
    return [json.loads(line) for line in gzip.decompress(reply.content).splitlines()]


def test_export_selects_members_by_either_segment_or_filter(
    client: httpx2.Client, list_id: int
) -> None:
    members = some_members(client, list_id, 3, vips=2)
    segment = new_segment(client, list_id)
    assert emails_of(client, list_id, segment_id=segment["id"]) == members[:2]
    assert emails_of(client, list_id, filter={"not": VIP}) == members[2:]
    both = {"kind": "members", "filter": VIP, "segment_id": segment["id"]}
    problem(client.post(f"/lists/{list_id}/exports", json=both), 400, "selection.unclear")


def test_export_selects_members_by_status(
    client: httpx2.Client, make_reader: Any, list_id: int
) -> None:
    stays, removed = some_members(client, list_id, 2, vips=2)
    user_id = known_member(client, list_id, removed)["user_id"]
    data(client.delete(f"/subscriptions/{list_id}/members/{user_id}"))
    left = make_reader().joins(list_id).leaves(list_id).email
    for status, expected in (
        (["unsubscribed"], {left}),
        (["active", "removed", "removed"], {stays, removed}),
        (None, {stays, left}),
    ):
        found = emails_of(client, list_id, status=status)
        assert set(found) == expected
        assert len(found) == len(expected)
    # An export with a filter contains only active members, unless it names other statuses.
    assert emails_of(client, list_id, filter=VIP) == [stays]
    named = {"field": "status", "in": ["removed", "unsubscribed"]}
    assert set(emails_of(client, list_id, filter=named)) == {removed, left}
    assert emails_of(client, list_id, filter=named, status=["active"]) == []


def test_member_export_starts_with_a_byte_order_mark_only_on_request(
    client: httpx2.Client, delivery_client: httpx2.Client, list_id: int
) -> None:
    [email] = some_members(client, list_id, 1)
    set_member(client, list_id, email, name="Zoë Müller")
    marked, plain = (
        gzip.decompress(httpx2.get(file_of(client, list_id, bom=bom)).content)
        for bom in (True, False)
    )

    assert marked == codecs.BOM_UTF8 + plain
    assert plain.startswith(b'"email"')
    other = new_list(client)["id"]
    assert imported(client, other, marked)["columns"][0]["name"] == "email"
    assert known_member(client, other, email)["name"] == "Zoë Müller"
    lines = {"kind": "members", "format": "jsonl", "bom": True}
    problem(client.post(f"/lists/{list_id}/exports", json=lines), 422, "export.bom")
    roster = {"kind": "delivery", "bom": True}
    problem(delivery_client.post(f"/lists/{list_id}/exports", json=roster), 422, "export.bom")


FIELDS: dict[str, tuple[str, Any]] = {
    "town": ("text", "=Rome, +39"),
    "age": ("number", 41.5),
    "since": ("date", "2020-02-29"),
    "adult": ("boolean", True),
}


def test_export_contains_fields_and_tags_and_escapes_formulas_only_in_csv(
    client: httpx2.Client, list_id: int
) -> None:
    [ada, ben] = some_members(client, list_id, 2)
    field_ids = [new_field(client, key, kind)["id"] for key, (kind, _) in FIELDS.items()]
    values = {key: value for key, (_, value) in FIELDS.items()}
    tags = ["=1+1", "plain", 'with "quotes"']
    set_member(client, list_id, ada, name="=cmd", fields=values, tags=tags)
    [first, second] = objects_in(file_of(client, list_id, format="jsonl"))
    assert {key: first[f"fields.{key}"] for key in FIELDS} == values
    assert (first["email"], first["name"], first["tags"]) == (ada, "=cmd", tags)
    shown = known_member(client, list_id, ada)
    assert first["joined_at"] == shown["joined_at"]
    assert (first["tier"], first["paid_expiry"], first["email_enabled"]) == ("free", None, True)
    assert first["user_id"] == shown["user_id"]
    assert (second["email"], second["tags"], second["fields.town"]) == (ben, [], None)
    [row, blank] = exported(client, list_id)
    assert list(row) == list(first)
    assert (row["name"], row["fields.town"]) == ("'=cmd", "'=Rome, +39")
    assert (row["fields.age"], row["fields.adult"]) == ("41.5", "true")
    assert (row["tags"], blank["tags"]) == ('\'=1+1, plain, "with ""quotes"""', "")
    assert {blank[f"fields.{key}"] for key in FIELDS} == {""}
    # Exports don't contain custom fields that have been retired.
    for field_id in field_ids:
        data(client.delete(f"/fields/{field_id}"))
    [row, _] = objects_in(file_of(client, list_id, format="jsonl"))
    assert not [name for name in row if name.startswith("fields.")]


def test_export_link_of_one_format_does_not_open_the_other_format(
    client: httpx2.Client, list_id: int
) -> None:
    slug = data(client.get(f"/lists/{list_id}"))["slug"]
    some_members(client, list_id, 1)
    url = httpx2.URL(file_of(client, list_id, format="jsonl"))
    assert url.path.endswith("/file.jsonl.gz")
    disposition = httpx2.get(url).headers["content-disposition"]
    assert disposition == f'attachment; filename="{slug}-members.jsonl.gz"'
    other = url.copy_with(path=url.path.replace("jsonl", "csv"))
    problem(httpx2.get(other), 403, "link.invalid")


def test_delivery_export_of_a_segment_omits_members_without_mail_or_with_opt_out(
    client: httpx2.Client, delivery_client: httpx2.Client, make_reader: Any, list_id: int
) -> None:
    everyone = {"field": "status", "in": ["active", "pending", "unsubscribed", "removed"]}
    stays, quiet, removed = some_members(client, list_id, 3, vips=3)
    ids = {each: known_member(client, list_id, each)["user_id"] for each in (quiet, removed)}
    path = f"/subscriptions/{list_id}/members"
    data(client.put(f"{path}/{ids[quiet]}/email", json={"enabled": False}))
    data(client.delete(f"{path}/{ids[removed]}"))
    make_reader().joins(list_id).leaves(list_id)
    off = make_reader().joins(list_id)
    off.wants_mail(list_id, False)
    segment = new_segment(client, list_id, everyone)
    for choice in ({"segment_id": segment["id"]}, {"filter": everyone}, {"filter": VIP}):
        assert emails_of(delivery_client, list_id, "delivery", **choice) == [stays]
    [row] = objects_in(file_of(delivery_client, list_id, "delivery", filter=VIP, format="jsonl"))
    assert row["email"] == stays
    assert emails_of(delivery_client, list_id, "delivery", filter={"not": VIP}) == []


def test_export_rejects_an_invalid_kind_or_format_or_status(
    client: httpx2.Client, delivery_client: httpx2.Client, list_id: int
) -> None:
    path = f"/lists/{list_id}/exports"
    choices: list[dict[str, Any]] = [
        {"kind": "all"},
        {"format": "xml"},
        {"status": []},
        {"segment_id": "1"},
    ]
    for choice in choices:
        body = {"kind": "members", **choice}
        problem(client.post(path, json=body), 422, "body.invalid")
    roster = {"kind": "delivery", "status": ["active"]}
    problem(delivery_client.post(path, json=roster), 422, "export.status_of_roster")


ROSTER = [
    *("email", "name", "user_id", "trace_id", "one_click_url"),
    *("list_id_header", "list_unsubscribe_header", "list_unsubscribe_post_header"),
    "delivery_id",
]


def test_delivery_export_contains_recipients_with_ready_unsubscribe_headers(
    stack: Stack,
    client: httpx2.Client,
    delivery_client: httpx2.Client,
    make_reader: Any,
    list_id: int,
) -> None:
    odd, plain = "=odd+one@example.com", new_address()
    people = [{"email": odd, "name": "=cmd"}, {"email": plain, "name": "Ada"}]
    data(add(client, list_id, *people))
    make_reader().joins(list_id).leaves(list_id)
    make_reader().joins(list_id).wants_mail(list_id, False)
    job = data(export(delivery_client, list_id, "delivery"))
    assert (job["kind"], job["result"]["rows"]) == (EXPORT_JOBS[ExportKind.DELIVERY].name, 2)
    rows = unpacked(job["result"]["url"])
    assert list(rows[0]) == ROSTER
    assert [(row["email"], row["name"]) for row in rows] == [(odd, "'=cmd"), (plain, "Ada")]
    row, slug = rows[0], data(client.get(f"/lists/{list_id}"))["slug"]
    base = stack.settings().public_base
    assert row["list_id_header"] == f"<{slug}.{urlsplit(base).hostname}>"
    assert row["list_unsubscribe_post_header"] == "List-Unsubscribe=One-Click"
    one_click = urlsplit(row["one_click_url"])
    assert one_click.path == f"/subscriptions/{list_id}/delete"
    assert dict(parse_qsl(one_click.query)) == {"trace_id": row["trace_id"]}
    unsubscribe = row["list_unsubscribe_header"]
    assert unsubscribe.startswith(f"<{base}/unsubscribe?trace_id=")
    assert unsubscribe.endswith(">")
    assert httpx2.get(unsubscribe[1:-1]).status_code == 200


def test_trace_id_in_delivery_export_unsubscribes_only_its_own_person(
    client: httpx2.Client, delivery_client: httpx2.Client, stranger: httpx2.Client, list_id: int
) -> None:
    data(add(client, list_id, *addresses(4)))
    rows = leaves, one_click, header, stays = exported(delivery_client, list_id, "delivery")
    path = f"/subscriptions/{list_id}"
    assert data(stranger.delete(path, params={"trace_id": leaves["trace_id"]})) == 1
    body = {"List-Unsubscribe": "One-Click"}
    assert data(httpx2.post(one_click["one_click_url"], data=body)) == 1
    # Mail clients send a POST to the URL in the header, which shows a page to people.
    assert httpx2.post(header["list_unsubscribe_header"][1:-1], data=body).status_code == 200
    standing = {row["email"]: known_member(client, list_id, row["email"]) for row in rows}
    assert standing[leaves["email"]]["status"] == "unsubscribed"
    for row in (one_click, header):
        shown = standing[row["email"]]
        assert shown["status"] != "active" or not shown["email_enabled"]
    assert standing[stays["email"]]["status"] == "active"
    assert emails_of(delivery_client, list_id, "delivery") == [stays["email"]]
    other = new_list(client)["id"]
    reply = stranger.delete(f"/subscriptions/{other}", params={"trace_id": stays["trace_id"]})
    problem(reply, 403, "trace.invalid")


def test_delivery_export_omits_a_person_whose_erasure_has_started(
    stack: Stack, client: httpx2.Client, delivery_client: httpx2.Client, list_id: int
) -> None:
    gone, other = new_address(), new_address()
    data(add(client, list_id, gone, other))
    user_id = known_member(client, list_id, gone)["user_id"]
    # The erasure has begun, but its job has not run yet.
    begin = "INSERT INTO erasures (user_id, job_id) VALUES (%s, 0) RETURNING user_id"
    stack.query(begin, user_id)
    try:
        found = emails_of(delivery_client, list_id, "delivery")
    finally:
        stack.query("DELETE FROM erasures WHERE user_id = %s RETURNING user_id", user_id)
    assert found == [other]


def test_delivery_export_omits_opted_out_people_even_if_their_record_is_active(
    stack: Stack,
    client: httpx2.Client,
    delivery_client: httpx2.Client,
    reader: Reader,
    list_id: int,
) -> None:
    reader.joins(list_id).leaves(list_id)
    stack.query(
        "UPDATE subscriptions SET status = 'active', email_enabled = true"
        " WHERE list_id = %s AND user_id = %s",
        list_id,
        reader.user_id,
    )
    assert [each["email"] for each in everybody(client, list_id).values()] == [reader.email]
    assert data(export(delivery_client, list_id, "delivery"))["result"]["rows"] == 0
