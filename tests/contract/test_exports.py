"""Tests exports of members for the list's owner, and of recipients for the mailing software."""

import csv
import gzip
import io
from datetime import timedelta
from functools import partial
from itertools import cycle
from typing import Any

import httpx2
import pytest

from core import clock
from core.ids import random_hash_id
from core.scopes import Scope
from core.signed_urls import FILE_URL_LIFETIME, FILE_URLS
from devstack.harness.stack import Stack
from services.jobs.lease import JobCancelled, Lease
from services.jobs.transitions import cancel_job, claim_job
from services.subscriptions import export_sheets, exports
from tests.support.http.replies import data, problem
from tests.support.imports.bulk import (
    active_members,
    add,
    build_address_file,
    build_addresses,
    build_csv,
    export,
    export_file,
    export_rows,
    fetch_rows,
    import_members_file,
    list_stored_keys,
)
from tests.support.imports.product_files import PRODUCT_FILES
from tests.support.lists.subscribers import (
    Reader,
    find_member,
    new_address,
    new_list,
    require_member,
)

COLUMNS = [
    "email",
    "name",
    "status",
    "tier",
    "paid_expiry",
    "email_enabled",
    "source",
    "user_id",
    "created_at",
    "joined_at",
    "consent_at",
    "consent_how",
    "consent_ip",
    "consent_url",
    "consent_wording",
    "consent_confirmed_at",
    "consent_confirmed_ip",
    "consent_claimed_by",
    "tags",
    "utm_source",
    "utm_medium",
    "utm_campaign",
    "utm_term",
    "utm_content",
    "referrer",
    "landing",
    "left_reason",
    "stated_reason",
]


def test_member_export_contains_all_members_except_removed_ones(
    client: httpx2.Client, make_reader: Any, list_id: int
) -> None:
    ada, removed = build_addresses(2)
    header = ["Email", "Name", "Tier", "Paid until"]
    rows = ([ada, "Ada, Countess", "gold", "2031-05-06"], [removed, "", "", ""])
    import_members_file(client, list_id, build_csv(header, *rows))
    user_id = require_member(client, list_id, removed)["user_id"]
    data(client.delete(f"/subscriptions/{list_id}/members/{user_id}"))
    opted_out = make_reader().joins(list_id).leaves(list_id)
    without_mail = make_reader().joins(list_id)
    without_mail.wants_mail(list_id, False)
    job = data(export(client, list_id, "members"))
    assert (job["kind"], job["status"], job["result"]["rows"]) == ("export.members", "succeeded", 3)
    exported_rows = fetch_rows(job["result"]["url"])
    assert list(exported_rows[0]) == COLUMNS
    rows_by_email = {row["email"]: row for row in exported_rows}
    assert set(rows_by_email) == {ada, opted_out.email, without_mail.email}
    member_record = require_member(client, list_id, ada)
    timestamp_columns = ("created_at", "joined_at", "consent_at")
    assert rows_by_email[ada] == {
        **dict.fromkeys(COLUMNS, ""),
        **dict.fromkeys(timestamp_columns, member_record["created_at"]),
        "email": ada,
        "name": "Ada, Countess",
        "status": "active",
        "tier": "gold",
        "paid_expiry": "2031-05-06T00:00:00.000000Z",
        "email_enabled": "true",
        "source": "import",
        "user_id": str(member_record["user_id"]),
        "consent_how": "import",
        "consent_claimed_by": "owner",
    }
    assert rows_by_email[opted_out.email]["status"] == "unsubscribed"
    row = rows_by_email[without_mail.email]
    assert (row["email_enabled"], row["source"]) == ("false", "login")


def test_exported_file_can_be_imported_into_another_list_without_loss(
    client: httpx2.Client, reader: Reader, list_id: int
) -> None:
    names = ["=1+1", "+49 Ada", "-x", "@handle", 'Quote "Q"', "Comma, Name", "Zoë 李", "'Twas", ""]
    tiers = ["free", "silver", "gold"]
    rows = [
        [email, name, tiers[index % 3], "2031-05-06" if index % 3 else ""]
        for index, (email, name) in enumerate(zip(build_addresses(len(names)), names, strict=True))
    ]
    import_members_file(client, list_id, build_csv(["Email", "Name", "Tier", "Paid until"], *rows))
    # An import of a file removes the apostrophe that an export puts before a formula. If an API
    # request adds a member, an apostrophe at the start of the name stays a part of the name.
    member_with_apostrophe = {"email": "+plus@example.com", "name": "'=x"}
    data(add(client, list_id, "=dangerous@example.com", member_with_apostrophe))
    assert require_member(client, list_id, "+plus@example.com")["name"] == "'=x"
    reader.joins(list_id).leaves(list_id)
    other_list_id = new_list(client)["id"]
    url = export_file(client, list_id)
    result = import_members_file(
        client, other_list_id, httpx2.get(url).content, "list-members.csv.gz"
    )
    assert (result["added"], result["opted_out"]) == (len(names) + 2, 1)
    compared_attributes = ("name", "type", "paid_expiry", "status", "email_enabled")

    def read_members(source_list_id: int) -> dict[str, list[Any]]:
        return {
            email: [record[attribute] for attribute in compared_attributes]
            for email, record in active_members(client, source_list_id).items()
        }

    assert read_members(other_list_id) == read_members(list_id)
    assert {row["name"] for row in fetch_rows(url)} >= {"'=1+1", "'+49 Ada", "'-x", "'@handle"}
    assert {row["email"] for row in fetch_rows(url)} >= {"'=dangerous@example.com"}
    assert find_member(client, other_list_id, reader.email) is None


def test_export_file_is_a_gzip_download_that_must_not_be_cached(
    client: httpx2.Client, list_id: int
) -> None:
    slug = data(client.get(f"/lists/{list_id}"))["slug"]
    result = data(export(client, list_id, "members"))["result"]
    reply = httpx2.get(result["url"])
    assert reply.headers["content-type"] == "application/gzip"
    disposition = f'attachment; filename="{slug}-members.csv.gz"'
    assert reply.headers["content-disposition"] == disposition
    assert reply.headers["cache-control"] == "private, no-store"
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert int(reply.headers["content-length"]) == len(reply.content)
    head = httpx2.head(result["url"])
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == reply.headers["content-length"]
    # The export of an empty list contains only the header.
    text = gzip.decompress(reply.content).decode()
    assert (result["rows"], next(csv.reader(io.StringIO(text)))) == (0, COLUMNS)


def test_export_link_opens_only_its_own_file_and_expires_after_fifteen_minutes(
    stack: Stack, client: httpx2.Client, list_id: int
) -> None:
    first_url, second_url = (httpx2.URL(export_file(client, list_id)) for _ in range(2))
    for url in (
        first_url.copy_with(query=None),
        first_url.copy_with(path=second_url.path),
        first_url.copy_set_param("expires", str(int(first_url.params["expires"]) + 1)),
        first_url.copy_set_param("expires", "x"),
        first_url.copy_set_param("signature", "x"),
        first_url.copy_set_param("signature", "ä"),
    ):
        problem(httpx2.get(url), 403, "link.invalid")
        # A URL without a valid signature is rejected even if the request contains an API key.
        problem(client.get(str(url)), 403, "link.invalid")
    assert client.get(str(first_url)).status_code == 200
    base = stack.settings().public_base
    create_url = partial(
        FILE_URLS.create, stack.resources.keyring, base=base, lifetime=FILE_URL_LIFETIME
    )
    for age, status in ((timedelta(minutes=14, seconds=30), 200), (timedelta(minutes=15), 403)):
        link, _ = create_url(first_url.path, now=clock.now() - age)
        assert httpx2.get(link).status_code == status
    url_of_missing_export, _ = create_url("/exports/0/file.csv.gz", now=clock.now())
    problem(httpx2.get(url_of_missing_export), 404, "export.not_found")


def test_export_shows_one_consistent_snapshot_despite_concurrent_changes(
    stack: Stack, client: httpx2.Client, list_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    emails = build_addresses(30)
    import_members_file(client, list_id, build_address_file(*emails))
    # Read one row per batch, so that the test can change the list after the first row.
    monkeypatch.setattr(exports, "_BATCH_ROWS", 1)
    sheet = export_sheets.build_members_sheet(list_id, {}, {})
    batches = exports._read_batches(stack.resources, sheet, failures=0)
    [first_row] = next(batches)
    stack.query("UPDATE subscriptions SET name = 'Changed' WHERE list_id = %s", list_id)
    stack.query("DELETE FROM subscriptions WHERE list_id = %s AND email = %s", list_id, emails[9])
    data(add(client, list_id, new_address()))
    rows = [first_row, *(row for [row] in batches)]
    assert [email for email, *_ in rows] == emails
    assert {name for _, name, *_ in rows} == {None}
    assert len(export_rows(client, list_id)) == 30


def test_cancelled_export_deletes_its_stored_objects(
    stack_without_workers: Stack,
    client_without_workers: httpx2.Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    list_id = new_list(client_without_workers)["id"]
    job = data(export(client_without_workers, list_id, "members", Prefer="wait=0"), 202)
    with stack_without_workers.resources.unit_of_work() as uow:
        lease = claim_job(uow, job["id"])
    assert lease is not None
    monkeypatch.setattr(
        exports, "_read_batches", lambda *_, **__: stop_after_a_part(stack_without_workers, lease)
    )
    with pytest.raises(JobCancelled):
        exports.write_export(stack_without_workers.resources, lease)
    assert list_stored_keys(stack_without_workers, "exports")
    with stack_without_workers.resources.unit_of_work() as uow:
        cancel_job(uow, lease)
    assert list_stored_keys(stack_without_workers, "exports") == set()
    [row] = stack_without_workers.query(
        "SELECT finished_at FROM exports WHERE id = %s", lease.subject_id
    )
    assert row[0] is not None


def stop_after_a_part(stack: Stack, lease: Lease) -> None:
    [row] = stack.query("SELECT object_prefix FROM exports WHERE id = %s", lease.subject_id)
    stack.resources.objects.put(f"{row[0]}/file/00000", b"x", "text/plain")
    lease.cancelled.set()
    lease.check_cancelled()


def test_export_file_changed_in_storage_is_never_delivered_completely(
    stack: Stack, client: httpx2.Client, list_id: int
) -> None:
    import_members_file(client, list_id, build_address_file(*build_addresses(3)))
    job = data(export(client, list_id, "members"))
    url, export_id = job["result"]["url"], job["result"]["export_id"]
    [(prefix,)] = stack.query("SELECT object_prefix FROM exports WHERE id = %s", export_id)
    [name] = stack.stored(f"{prefix}/")
    sealed = stack.resources.objects.get(name)
    stack.resources.objects.put(name, sealed[:-1] + bytes([sealed[-1] ^ 1]), "text/plain")
    with pytest.raises(httpx2.RemoteProtocolError):
        httpx2.get(url)
    stack.resources.objects.put(name, sealed, "text/plain")
    assert len(fetch_rows(url)) == 3
    [(key_id,)] = stack.query("SELECT wrapped_by FROM exports WHERE id = %s", export_id)
    set_key_id = "UPDATE exports SET wrapped_by = %s WHERE id = %s"
    stack.query(set_key_id, "gone", export_id)
    problem(httpx2.get(url), 500, "media.damaged")
    # Restore the id of the encryption key, because the rotation of encryption keys fails if an
    # export names an unknown key.
    stack.query(set_key_id, key_id, export_id)


def test_delivery_export_requires_the_delivery_scope_and_is_visible_only_to_its_creator(
    *,
    client: httpx2.Client,
    read_only_client: httpx2.Client,
    stranger: httpx2.Client,
    delivery_client: httpx2.Client,
    list_id: int,
) -> None:
    for api_client in (client, read_only_client):
        error = problem(export(api_client, list_id, "delivery"), 403, "auth.insufficient_scope")
        # The error says what the scope allows, and who grants it.
        assert "export the list's roster" in error["message"]
        assert "POST /apikeys with list_ids" in error["message"]
        assert "The operator can create one for any list" in error["message"]
    problem(export(delivery_client, list_id, "members"), 403, "auth.insufficient_scope")
    assert data(export(read_only_client, list_id, "members"))["result"]["rows"] == 0
    problem(export(stranger, list_id, "delivery"), 401, "auth.credentials_missing")
    problem(export(delivery_client, 999_999_999, "delivery"), 404, "list.not_found")
    job = data(export(delivery_client, list_id, "delivery"))
    # Only the caller who started the export can see its job, which contains the link.
    problem(client.get(f"/jobs/{job['id']}"), 404, "job.not_found")
    assert data(delivery_client.get(f"/jobs/{job['id']}"))["result"]["rows"] == 0


def test_delivery_export_of_an_owner_is_hidden_from_their_keys_without_delivery_scope(
    stack: Stack, client: httpx2.Client, owner: Any, list_id: int
) -> None:
    with stack.client(stack.create_key(owner.user_id, Scope.DELIVERY)) as sending_app:
        job = data(export(sending_app, list_id, "delivery"))
    problem(client.get(f"/jobs/{job['id']}"), 403, "auth.insufficient_scope")
    assert job["id"] not in {each["id"] for each in data(client.get("/jobs"))["items"]}


def test_delivery_export_of_a_list_without_email_channel_is_rejected(
    client: httpx2.Client, delivery_client: httpx2.Client
) -> None:
    list_id = new_list(client, email_channel_enabled=False)["id"]
    problem(export(delivery_client, list_id, "delivery"), 409, "list.email_channel_disabled")
    assert data(export(client, list_id, "members"))["result"]["rows"] == 0


# The attributes of a member that an export and an import must preserve. The tests don't compare a
# member's id and creation time, because an imported member gets a new id and a new creation time.
COMPARED_ATTRIBUTES = (
    "email",
    "name",
    "status",
    "type",
    "paid_expiry",
    "email_enabled",
    "joined_at",
    "tags",
    "origin",
)


@pytest.mark.parametrize(
    ("product", "file_format"), list(zip(PRODUCT_FILES, cycle(("csv", "jsonl")), strict=False))
)
def test_import_file_of_another_product_is_unchanged_after_export_and_reimport(
    stack: Stack, client: httpx2.Client, list_id: int, product: str, file_format: str
) -> None:
    content = PRODUCT_FILES[product].format(d=f"{random_hash_id(8)}.example.com")
    import_members_file(client, list_id, content.encode(), create_fields="1")
    exported_file = gzip.decompress(
        httpx2.get(export_file(client, list_id, format=file_format), timeout=30).content
    )
    with stack.client(stack.create_owner().key) as other_client:
        other_list_id = new_list(other_client)["id"]
        result = import_members_file(
            other_client, other_list_id, exported_file, f"members.{file_format}", create_fields="1"
        )
        assert result["ignored_columns"] == [
            *("source", "user_id", "consent_claimed_by", "left_reason", "stated_reason")
        ]
        members_before = describe_members(client, list_id)
        members_after = describe_members(other_client, other_list_id)
        assert set(members_before) == set(members_after)
        for email, member in members_before.items():
            assert members_after[email] == member


def describe_members(client: httpx2.Client, list_id: int) -> dict[str, Any]:
    """Map each member's address to the data that an export and an import must preserve."""
    return {
        email: {
            **{name: member_record[name] for name in COMPARED_ATTRIBUTES},
            "fields": {
                key: value for key, value in member_record["fields"].items() if value is not None
            },
            "consent": read_consents(client, list_id, member_record["user_id"]),
        }
        for email, member_record in active_members(client, list_id).items()
    }


def read_consents(client: httpx2.Client, list_id: int, user_id: int) -> set[tuple[str, ...]]:
    """Return the time, IP address, URL and wording of each consent entry with an IP address.

    The consent entry that the import itself adds has no IP address.
    """
    entries = data(client.get(f"/lists/{list_id}/members/{user_id}/consent"))["items"]
    names = ("at", "ip", "url", "wording")
    return {tuple(str(each[name]) for name in names) for each in entries if each["ip"]}
