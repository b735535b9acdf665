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
    active_members,
    add,
    build_addresses,
    export,
    export_emails,
    export_file,
    export_rows,
    fetch_rows,
    import_members_file,
)
from tests.support.lists.segments import (
    VIP,
    import_some_members,
    new_field,
    new_segment,
    set_member,
)
from tests.support.lists.subscribers import Reader, new_address, new_list, require_member


def read_json_lines(url: str) -> list[dict[str, Any]]:
    reply = httpx2.get(url, timeout=30.0)
    assert reply.status_code == 200, reply.text
    return [json.loads(line) for line in gzip.decompress(reply.content).splitlines()]


def test_export_selects_members_by_either_segment_or_filter(
    client: httpx2.Client, list_id: int
) -> None:
    members = import_some_members(client, list_id, 3, vips=2)
    segment = new_segment(client, list_id)
    assert export_emails(client, list_id, segment_id=segment["id"]) == members[:2]
    assert export_emails(client, list_id, filter={"not": VIP}) == members[2:]
    body = {"kind": "members", "filter": VIP, "segment_id": segment["id"]}
    problem(client.post(f"/lists/{list_id}/exports", json=body), 400, "selection.unclear")


def test_export_selects_members_by_status(
    client: httpx2.Client, make_reader: Any, list_id: int
) -> None:
    active_email, removed_email = import_some_members(client, list_id, 2, vips=2)
    user_id = require_member(client, list_id, removed_email)["user_id"]
    data(client.delete(f"/subscriptions/{list_id}/members/{user_id}"))
    unsubscribed_email = make_reader().joins(list_id).leaves(list_id).email
    for status, expected in (
        (["unsubscribed"], {unsubscribed_email}),
        (["active", "removed", "removed"], {active_email, removed_email}),
        (None, {active_email, unsubscribed_email}),
    ):
        emails = export_emails(client, list_id, status=status)
        assert set(emails) == expected
        assert len(emails) == len(expected)
    # An export with a filter contains only active members, unless it names other statuses.
    assert export_emails(client, list_id, filter=VIP) == [active_email]
    status_filter = {"field": "status", "in": ["removed", "unsubscribed"]}
    emails = export_emails(client, list_id, filter=status_filter)
    assert set(emails) == {removed_email, unsubscribed_email}
    assert export_emails(client, list_id, filter=status_filter, status=["active"]) == []


def test_member_export_starts_with_a_byte_order_mark_only_on_request(
    client: httpx2.Client, delivery_client: httpx2.Client, list_id: int
) -> None:
    [email] = import_some_members(client, list_id, 1)
    set_member(client, list_id, email, name="Zoë Müller")
    file_with_bom, file_without_bom = (
        gzip.decompress(httpx2.get(export_file(client, list_id, bom=bom)).content)
        for bom in (True, False)
    )

    assert file_with_bom == codecs.BOM_UTF8 + file_without_bom
    assert file_without_bom.startswith(b'"email"')
    other_list_id = new_list(client)["id"]
    assert (
        import_members_file(client, other_list_id, file_with_bom)["columns"][0]["name"] == "email"
    )
    assert require_member(client, other_list_id, email)["name"] == "Zoë Müller"
    json_lines_body = {"kind": "members", "format": "jsonl", "bom": True}
    problem(client.post(f"/lists/{list_id}/exports", json=json_lines_body), 422, "export.bom")
    roster_body = {"kind": "delivery", "bom": True}
    problem(delivery_client.post(f"/lists/{list_id}/exports", json=roster_body), 422, "export.bom")


# Maps the key of each custom field to its type and to a sample value.
FIELD_VALUES: dict[str, tuple[str, Any]] = {
    "town": ("text", "=Rome, +39"),
    "age": ("number", 41.5),
    "since": ("date", "2020-02-29"),
    "adult": ("boolean", True),
}


def test_export_contains_fields_and_tags_and_escapes_formulas_only_in_csv(
    client: httpx2.Client, list_id: int
) -> None:
    [ada, ben] = import_some_members(client, list_id, 2)
    field_ids = [new_field(client, key, kind)["id"] for key, (kind, _) in FIELD_VALUES.items()]
    values = {key: value for key, (_, value) in FIELD_VALUES.items()}
    tags = ["=1+1", "plain", 'with "quotes"']
    set_member(client, list_id, ada, name="=cmd", fields=values, tags=tags)
    [json_ada, json_ben] = read_json_lines(export_file(client, list_id, format="jsonl"))
    assert {key: json_ada[f"fields.{key}"] for key in FIELD_VALUES} == values
    assert (json_ada["email"], json_ada["name"], json_ada["tags"]) == (ada, "=cmd", tags)
    member_record = require_member(client, list_id, ada)
    assert json_ada["joined_at"] == member_record["joined_at"]
    assert (json_ada["tier"], json_ada["paid_expiry"], json_ada["email_enabled"]) == (
        "free",
        None,
        True,
    )
    assert json_ada["user_id"] == member_record["user_id"]
    assert (json_ben["email"], json_ben["tags"], json_ben["fields.town"]) == (ben, [], None)
    [csv_ada, csv_ben] = export_rows(client, list_id)
    assert list(csv_ada) == list(json_ada)
    assert (csv_ada["name"], csv_ada["fields.town"]) == ("'=cmd", "'=Rome, +39")
    assert (csv_ada["fields.age"], csv_ada["fields.adult"]) == ("41.5", "true")
    assert (csv_ada["tags"], csv_ben["tags"]) == ('\'=1+1, plain, "with ""quotes"""', "")
    assert {csv_ben[f"fields.{key}"] for key in FIELD_VALUES} == {""}
    # Exports don't contain custom fields that have been retired.
    for field_id in field_ids:
        data(client.delete(f"/fields/{field_id}"))
    [json_ada, _] = read_json_lines(export_file(client, list_id, format="jsonl"))
    assert not [name for name in json_ada if name.startswith("fields.")]


def test_export_link_of_one_format_does_not_open_the_other_format(
    client: httpx2.Client, list_id: int
) -> None:
    slug = data(client.get(f"/lists/{list_id}"))["slug"]
    import_some_members(client, list_id, 1)
    url = httpx2.URL(export_file(client, list_id, format="jsonl"))
    assert url.path.endswith("/file.jsonl.gz")
    disposition = httpx2.get(url).headers["content-disposition"]
    assert disposition == f'attachment; filename="{slug}-members.jsonl.gz"'
    csv_url = url.copy_with(path=url.path.replace("jsonl", "csv"))
    problem(httpx2.get(csv_url), 403, "link.invalid")


def test_delivery_export_of_a_segment_omits_members_without_mail_or_with_opt_out(
    client: httpx2.Client, delivery_client: httpx2.Client, make_reader: Any, list_id: int
) -> None:
    any_status = {"field": "status", "in": ["active", "pending", "unsubscribed", "removed"]}
    active_email, silent_email, removed_email = import_some_members(client, list_id, 3, vips=3)
    user_ids = {
        each: require_member(client, list_id, each)["user_id"]
        for each in (silent_email, removed_email)
    }
    path = f"/subscriptions/{list_id}/members"
    data(client.put(f"{path}/{user_ids[silent_email]}/email", json={"enabled": False}))
    data(client.delete(f"{path}/{user_ids[removed_email]}"))
    make_reader().joins(list_id).leaves(list_id)
    reader_without_mail = make_reader().joins(list_id)
    reader_without_mail.wants_mail(list_id, False)
    segment = new_segment(client, list_id, any_status)
    for selection in ({"segment_id": segment["id"]}, {"filter": any_status}, {"filter": VIP}):
        assert export_emails(delivery_client, list_id, "delivery", **selection) == [active_email]
    [row] = read_json_lines(
        export_file(delivery_client, list_id, "delivery", filter=VIP, format="jsonl")
    )
    assert row["email"] == active_email
    assert export_emails(delivery_client, list_id, "delivery", filter={"not": VIP}) == []


def test_export_rejects_an_invalid_kind_or_format_or_status(
    client: httpx2.Client, delivery_client: httpx2.Client, list_id: int
) -> None:
    path = f"/lists/{list_id}/exports"
    invalid_options: list[dict[str, Any]] = [
        {"kind": "all"},
        {"format": "xml"},
        {"status": []},
        {"segment_id": "1"},
    ]
    for invalid_option in invalid_options:
        body = {"kind": "members", **invalid_option}
        problem(client.post(path, json=body), 422, "body.invalid")
    roster_body = {"kind": "delivery", "status": ["active"]}
    problem(delivery_client.post(path, json=roster_body), 422, "export.status_of_roster")


ROSTER_COLUMNS = [
    "email",
    "name",
    "user_id",
    "trace_id",
    "one_click_url",
    "list_id_header",
    "list_unsubscribe_header",
    "list_unsubscribe_post_header",
    "delivery_id",
    "engagement",
]


def test_delivery_export_contains_recipients_with_ready_unsubscribe_headers(
    stack: Stack,
    client: httpx2.Client,
    delivery_client: httpx2.Client,
    make_reader: Any,
    list_id: int,
) -> None:
    odd_email = "=odd+one@example.com"
    plain_email = new_address()
    people = [{"email": odd_email, "name": "=cmd"}, {"email": plain_email, "name": "Ada"}]
    data(add(client, list_id, *people))
    make_reader().joins(list_id).leaves(list_id)
    make_reader().joins(list_id).wants_mail(list_id, False)
    job = data(export(delivery_client, list_id, "delivery"))
    assert (job["kind"], job["result"]["rows"]) == (EXPORT_JOBS[ExportKind.DELIVERY].name, 2)
    rows = fetch_rows(job["result"]["url"])
    assert list(rows[0]) == ROSTER_COLUMNS
    assert [(row["email"], row["name"]) for row in rows] == [
        (odd_email, "'=cmd"),
        (plain_email, "Ada"),
    ]
    row = rows[0]
    slug = data(client.get(f"/lists/{list_id}"))["slug"]
    base_url = stack.settings().public_base
    assert row["list_id_header"] == f"<{slug}.{urlsplit(base_url).hostname}>"
    assert row["list_unsubscribe_post_header"] == "List-Unsubscribe=One-Click"
    one_click_url = urlsplit(row["one_click_url"])
    assert one_click_url.path == f"/subscriptions/{list_id}/delete"
    assert dict(parse_qsl(one_click_url.query)) == {"trace_id": row["trace_id"]}
    unsubscribe_header = row["list_unsubscribe_header"]
    assert unsubscribe_header.startswith(f"<{base_url}/unsubscribe?trace_id=")
    assert unsubscribe_header.endswith(">")
    assert httpx2.get(unsubscribe_header[1:-1]).status_code == 200


def test_trace_id_in_delivery_export_unsubscribes_only_its_own_person(
    client: httpx2.Client, delivery_client: httpx2.Client, stranger: httpx2.Client, list_id: int
) -> None:
    data(add(client, list_id, *build_addresses(4)))
    rows = export_rows(delivery_client, list_id, "delivery")
    trace_id_row, one_click_row, header_row, remaining_row = rows
    path = f"/subscriptions/{list_id}"
    assert data(stranger.delete(path, params={"trace_id": trace_id_row["trace_id"]})) == 1
    body = {"List-Unsubscribe": "One-Click"}
    assert data(httpx2.post(one_click_row["one_click_url"], data=body)) == 1
    # The URL in a mail's header List-Unsubscribe shows a page to people, but mail clients send a
    # POST request to the URL.
    assert httpx2.post(header_row["list_unsubscribe_header"][1:-1], data=body).status_code == 200
    members = {row["email"]: require_member(client, list_id, row["email"]) for row in rows}
    assert members[trace_id_row["email"]]["status"] == "unsubscribed"
    for row in (one_click_row, header_row):
        member = members[row["email"]]
        assert member["status"] != "active" or not member["email_enabled"]
    assert members[remaining_row["email"]]["status"] == "active"
    assert export_emails(delivery_client, list_id, "delivery") == [remaining_row["email"]]
    other_list_id = new_list(client)["id"]
    reply = stranger.delete(
        f"/subscriptions/{other_list_id}", params={"trace_id": remaining_row["trace_id"]}
    )
    problem(reply, 403, "trace.invalid")


def test_delivery_export_omits_a_person_whose_erasure_has_started(
    stack: Stack, client: httpx2.Client, delivery_client: httpx2.Client, list_id: int
) -> None:
    erased_email, remaining_email = new_address(), new_address()
    data(add(client, list_id, erased_email, remaining_email))
    user_id = require_member(client, list_id, erased_email)["user_id"]
    # The erasure has begun, but its job has not run yet.
    begin_erasure = "INSERT INTO erasures (user_id, job_id) VALUES (%s, 0) RETURNING user_id"
    stack.query(begin_erasure, user_id)
    try:
        emails = export_emails(delivery_client, list_id, "delivery")
    finally:
        stack.query("DELETE FROM erasures WHERE user_id = %s RETURNING user_id", user_id)
    assert emails == [remaining_email]


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
    assert [each["email"] for each in active_members(client, list_id).values()] == [reader.email]
    assert data(export(delivery_client, list_id, "delivery"))["result"]["rows"] == 0
