"""Tests of the route for senders' reports: signatures, status codes, limits and encryption."""

import gzip
import json
from typing import Any

import httpx2
import pytest
import sqlalchemy

from core.scopes import Scope
from devstack.harness.polling import eventually
from devstack.harness.stack import Owner, Stack
from services.senders import applying
from services.senders.intake import MAX_WAITING_BODIES, MAX_WAITING_BYTES
from tests.support.http.replies import data, problem
from tests.support.lists.subscribers import new_address, new_list
from tests.support.senders.own_senders import new_sender
from tests.support.senders.posting import (
    body_of,
    outcomes,
    post,
    post_body,
    reject_calls,
    report,
    settle,
    signed,
)

JSON_HEADERS = {"Content-Type": "application/json"}
SNS_HEADERS = {"x-amz-sns-message-type": "Notification"}


@pytest.fixture
def waiting_sender(client_without_workers: httpx2.Client) -> dict[str, Any]:
    """A sender whose posted reports stay unprocessed, because the stack has no workers."""
    return new_sender(client_without_workers)


@pytest.fixture
def delivery_report() -> bytes:
    return body_of(report("delivered", email=new_address()))


def test_unknown_sender_and_missing_or_wrong_proof_get_the_same_answer(
    stack: Stack, client: httpx2.Client, delivery_report: bytes
) -> None:
    sender = new_sender(client)
    other_sender = new_sender(client)
    paused_sender = new_sender(client)
    data(client.patch(f"/senders/{paused_sender['id']}", json={"state": "paused"}))
    deleted_sender = new_sender(client)
    data(client.delete(f"/senders/{deleted_sender['id']}"))
    answers = set()
    for sender_id, headers in (
        (sender["id"], {}),
        (sender["id"], signed(other_sender["secret"], delivery_report)),
        (sender["id"], signed(sender["secret"], delivery_report + b" ")),
        (sender["id"], {"Authorization": "Bearer nonsense"}),
        (sender["id"], {"Authorization": "Basic bm86bm8="}),
        (paused_sender["id"], signed(paused_sender["secret"], delivery_report)),
        (deleted_sender["id"], signed(deleted_sender["secret"], delivery_report)),
        (2**53 - 2, signed(sender["secret"], delivery_report)),
        ("nobody", {}),
        (2**70, {}),
    ):
        reply = post_body(client, sender_id, delivery_report, headers)
        error = problem(reply, 401, "sender.signature_invalid")
        answers.add((reply.headers["www-authenticate"], error["message"]))
    message = "The signature, password or API key of the request isn't valid for this sender."
    assert answers == {('Basic realm="pressroom"', message)}
    sender_ids = [
        each_sender["id"] for each_sender in (sender, other_sender, paused_sender, deleted_sender)
    ]
    select_bodies = "SELECT 1 FROM sender_bodies WHERE sender_id = ANY(%s)"
    assert not stack.query(select_bodies, sender_ids)
    eventually(
        lambda: data(client.get(f"/senders/{sender['id']}"))["refused_24h"] == 5,
        what="the rejected calls counted",
    )
    assert data(client.get(f"/senders/{sender['id']}"))["last_refused_at"] is not None


def test_twenty_rejected_calls_in_an_hour_make_a_sender_fail_until_a_report_arrives(
    stack: Stack, client: httpx2.Client
) -> None:
    sender = new_sender(client)
    path = f"/senders/{sender['id']}"
    reject_calls(client, sender, count=20)
    eventually(lambda: data(client.get(path))["state"] == "failing", what="the failing state")
    data(post(client, sender, report("delivered", email=new_address())))
    settle(stack, sender)
    assert data(client.get(path))["state"] == "working"


def test_former_secret_is_accepted_for_a_day_after_a_rotation(
    stack: Stack, client: httpx2.Client
) -> None:
    sender = new_sender(client)
    new_secret = data(client.post(f"/senders/{sender['id']}/rotate"))["secret"]
    delivery = report("delivered", email=new_address())
    for secret in (sender["secret"], new_secret):
        assert data(post(client, {**sender, "secret": secret}, delivery)) == 1
    stack.query(
        "UPDATE sender_secrets SET expires_at = now() WHERE sender_id = %s"
        " AND expires_at IS NOT NULL",
        sender["id"],
    )
    problem(post(client, sender, delivery), 401, "sender.signature_invalid")


def test_generic_reports_are_accepted_with_an_api_key_of_the_owner(
    stack: Stack, owner: Owner, client: httpx2.Client, delivery_report: bytes
) -> None:
    sender = new_sender(client)
    expected_statuses = {
        stack.create_key(owner.user_id, Scope.SENDER): 200,
        stack.create_key(owner.user_id, Scope.WEBHOOK): 401,
        stack.create_key(stack.create_owner().user_id, Scope.SENDER): 401,
    }
    for key, status in expected_statuses.items():
        headers = {"Authorization": f"Bearer {key}", **JSON_HEADERS}
        assert post_body(client, sender["id"], delivery_report, headers).status_code == status
    postmark_sender = new_sender(client, provider="postmark")
    key = next(iter(expected_statuses))
    reply = post_body(client, postmark_sender["id"], b"{}", {"Authorization": f"Bearer {key}"})
    problem(reply, 401, "sender.signature_invalid")


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_any_content_type_is_accepted(
    client: httpx2.Client, delivery_report: bytes, content_type: str
) -> None:
    sender = new_sender(client)
    headers = signed(sender["secret"], delivery_report) | {"Content-Type": content_type}
    assert data(post_body(client, sender["id"], delivery_report, headers)) == 1


def test_body_that_is_too_large_is_rejected(client: httpx2.Client) -> None:
    sender = new_sender(client)
    provider_sender = new_sender(client, provider="brevo")
    large_body = b" " * (2 * 1024 * 1024 + 1)
    reply = post_body(client, sender["id"], large_body, signed(sender["secret"], large_body))
    problem(reply, 413, "body.too_large")
    headers = {"Authorization": f"Bearer {provider_sender['secret']}"}
    reply = post_body(client, provider_sender["id"], b" " * (1024 * 1024 + 1), headers)
    problem(reply, 413, "body.too_large")
    assert data(post_body(client, provider_sender["id"], b"[]", headers)) == 1


def test_waiting_body_is_encrypted_and_counts_as_no_job_and_no_storage(
    stack_without_workers: Stack, client_without_workers: httpx2.Client, waiting_sender: Any
) -> None:
    email = new_address()
    select_stored_bytes = "SELECT user_id, bytes FROM storage_uses ORDER BY user_id"
    bytes_before = stack_without_workers.query(select_stored_bytes)
    data(post(client_without_workers, waiting_sender, report("delivered", email=email)))
    [(stored_body,)] = stack_without_workers.query(
        "SELECT encode(body, 'escape') FROM sender_bodies WHERE sender_id = %s",
        waiting_sender["id"],
    )
    assert email not in str(stored_body)
    assert data(client_without_workers.get("/jobs"))["items"] == []
    assert not stack_without_workers.query("SELECT 1 FROM jobs WHERE kind LIKE 'sender%%'")
    assert stack_without_workers.query(select_stored_bytes) == bytes_before


@pytest.mark.parametrize(
    ("body_count", "body_bytes"), [(MAX_WAITING_BODIES, 1), (1, MAX_WAITING_BYTES)]
)
def test_sender_with_too_many_waiting_bodies_is_busy(
    stack_without_workers: Stack,
    client_without_workers: httpx2.Client,
    waiting_sender: dict[str, Any],
    *,
    body_count: int,
    body_bytes: int,
) -> None:
    client = client_without_workers
    delivery = report("delivered", email=new_address())
    assert data(post(client, waiting_sender, delivery)) == 1
    stack_without_workers.query(
        "INSERT INTO sender_bodies (sender_id, size, context, wrapped_key, wrapped_by, body)"
        " SELECT %s, %s, '', '', '', '' FROM generate_series(1, %s)",
        waiting_sender["id"],
        body_bytes,
        body_count,
    )
    reply = post(client, waiting_sender, delivery)
    problem(reply, 429, "sender.busy")
    assert int(reply.headers["retry-after"]) > 0
    body = body_of(delivery)
    headers = signed(waiting_sender["secret"], body)
    problem(
        post_body(client, waiting_sender["id"], body, headers | SNS_HEADERS), 503, "sender.busy"
    )
    # The limit on waiting request bodies applies per sender, so another sender can still post
    # reports.
    assert data(post(client, new_sender(client), delivery)) == 1
    stack_without_workers.query(
        "DELETE FROM sender_bodies WHERE sender_id = %s", waiting_sender["id"]
    )


def test_deletion_of_a_sender_waits_for_no_worker_and_drops_all_waiting_bodies(
    stack_without_workers: Stack,
    client_without_workers: httpx2.Client,
    waiting_sender: dict[str, Any],
) -> None:
    stack = stack_without_workers
    client = client_without_workers
    list_id = int(new_list(client)["id"])
    email = new_address()
    path = f"/senders/{waiting_sender['id']}"
    data(client.patch(path, json={"list_ids": [list_id]}))
    for _ in range(2):
        data(post(client, waiting_sender, report("complained", email=email)))
    with stack.resources.unit_of_work() as uow:
        # Lock the row of a stored request body, as a worker does while it processes the reports in
        # this request body.
        lock = "SELECT id FROM sender_bodies WHERE sender_id = :id ORDER BY id LIMIT 1 FOR UPDATE"
        uow.session.execute(sqlalchemy.text(lock), {"id": waiting_sender["id"]})
        assert data(client.delete(path)) == 1
    count_bodies = "SELECT count(*) FROM sender_bodies WHERE sender_id = %s"
    assert stack.query(count_bodies, waiting_sender["id"]) == [(1,)]
    applying.apply_waiting_bodies(stack.resources)
    assert stack.query(count_bodies, waiting_sender["id"]) == [(0,)]
    assert stack.query("SELECT 1 FROM opt_outs WHERE list_id = %s", list_id) == []


def test_body_that_no_installed_key_decrypts_is_invalid_and_delays_no_other_body(
    stack_without_workers: Stack,
    client_without_workers: httpx2.Client,
    waiting_sender: dict[str, Any],
) -> None:
    stack = stack_without_workers
    client = client_without_workers
    for _ in range(2):
        data(post(client, waiting_sender, report("delivered", email=new_address())))
    stack.query(
        "UPDATE sender_bodies SET wrapped_by = 'retired'"
        " WHERE id = (SELECT min(id) FROM sender_bodies WHERE sender_id = %s)",
        waiting_sender["id"],
    )
    applying.apply_waiting_bodies(stack.resources)
    assert outcomes(client, waiting_sender) == ["invalid", "unmatched"]


def test_call_is_rejected_if_no_installed_key_decrypts_the_secret(
    stack: Stack, client: httpx2.Client, delivery_report: bytes
) -> None:
    sender = new_sender(client)
    stack.query(
        "UPDATE sender_secrets SET wrapped_by = 'retired' WHERE sender_id = %s", sender["id"]
    )
    reply = post_body(
        client, sender["id"], delivery_report, signed(sender["secret"], delivery_report)
    )
    problem(reply, 401, "sender.signature_invalid")
    new_secret = data(client.post(f"/senders/{sender['id']}/rotate"))["secret"]
    reply = post_body(client, sender["id"], delivery_report, signed(new_secret, delivery_report))
    assert data(reply) == 1
    # The sender's former secret is encrypted with an unknown key. Delete the sender, because this
    # secret would make the rotation of encryption keys fail in another test.
    data(client.delete(f"/senders/{sender['id']}"))


def test_intake_is_busy_while_the_database_is_unavailable(
    disconnected_api: httpx2.Client, delivery_report: bytes
) -> None:
    reply = post_body(disconnected_api, 1, delivery_report, {})
    problem(reply, 429, "sender.busy")
    assert "retry-after" in reply.headers
    reply = post_body(disconnected_api, 1, delivery_report, SNS_HEADERS)
    problem(reply, 503, "sender.busy")
    assert "retry-after" in reply.headers


def test_unreadable_body_of_a_provider_is_accepted_and_shown_as_invalid(
    stack: Stack, client: httpx2.Client
) -> None:
    sender = new_sender(client, provider="postmark")
    headers = {"Authorization": f"Bearer {sender['secret']}"}
    body = json.dumps({"RecordType": "Moonrise"}).encode()
    for content in (b"{", body):
        assert data(post_body(client, sender["id"], content, headers)) == 1
    settle(stack, sender)
    items = data(client.get(f"/senders/{sender['id']}/reports"))["items"]
    outcomes_and_codes = [(each["outcome"], each["code"], each["kind"]) for each in reversed(items)]
    assert outcomes_and_codes == [("invalid", None, None), ("ignored", "Moonrise", None)]


GZIP_HEADERS = {"Content-Encoding": "gzip"}
MEGABYTE = 1024 * 1024


@pytest.mark.parametrize(
    ("encoding", "is_compressed"),
    [
        ("gzip", True),
        ("x-gzip", True),
        ("GZip", True),
        ("identity, gzip,", True),
        ("identity", False),
        ("Identity", False),
        ("", False),
    ],
)
def test_body_is_decompressed_if_its_content_encoding_is_gzip(
    stack: Stack, client: httpx2.Client, *, encoding: str, is_compressed: bool
) -> None:
    sender = new_sender(client)
    body = body_of(report("delivered", email=new_address()))
    sent_body = gzip.compress(body) if is_compressed else body
    headers = signed(sender["secret"], sent_body) | {"Content-Encoding": encoding}
    assert data(post_body(client, sender["id"], sent_body, headers)) == 1
    # The signature must be the signature of the bytes that are sent.
    headers = signed(sender["secret"], body) | {"Content-Encoding": encoding}
    if is_compressed:
        reply = post_body(client, sender["id"], sent_body, headers)
        problem(reply, 401, "sender.signature_invalid")
    settle(stack, sender)
    assert outcomes(client, sender) == ["unmatched"]


@pytest.mark.parametrize("provider", ["generic", "postmark", "mailgun"])
@pytest.mark.parametrize(
    "encoding", ["br", "deflate", "zstd", "compress", "gzip, gzip", "br, gzip", "gzipped", "*"]
)
def test_body_with_another_content_encoding_is_unsupported(
    client: httpx2.Client, encoding: str, provider: str
) -> None:
    fields = {"signing_key": "k"} if provider == "mailgun" else {}
    sender = new_sender(client, provider=provider, **fields)
    headers = {"Authorization": f"Bearer {sender['secret']}"}
    headers |= signed(sender["secret"], b"{}") if provider == "generic" else {}
    for sender_id in (sender["id"], 2**53 - 2):
        reply = post_body(client, sender_id, b"{}", {**headers, "Content-Encoding": encoding})
        error = problem(reply, 415, "body.encoding_unsupported")
        assert "gzip" in error["message"]


def test_compressed_body_is_limited_by_its_decompressed_size(
    stack: Stack, client: httpx2.Client
) -> None:
    delivery = body_of(report("delivered", email=new_address()))
    generic_sender = new_sender(client)
    for size, status in ((2 * MEGABYTE, 200), (2 * MEGABYTE + 1, 413), (50 * MEGABYTE, 413)):
        body = gzip.compress(delivery.ljust(size))
        headers = signed(generic_sender["secret"], body) | GZIP_HEADERS
        reply = post_body(client, generic_sender["id"], body, headers)
        assert reply.status_code == status
    problem(reply, 413, "body.too_large")
    provider_sender = new_sender(client, provider="brevo")
    headers = {"Authorization": f"Bearer {provider_sender['secret']}", **GZIP_HEADERS}
    for size, status in ((MEGABYTE, 200), (MEGABYTE + 1, 413), (50 * MEGABYTE, 413)):
        body = gzip.compress(b"[]".ljust(size))
        assert post_body(client, provider_sender["id"], body, headers).status_code == status
    settle(stack, generic_sender)
    assert outcomes(client, generic_sender) == ["unmatched"]


def test_damaged_compressed_body_counts_as_an_unreadable_body(
    stack: Stack, client: httpx2.Client
) -> None:
    intact = gzip.compress(body_of(report("delivered", email=new_address())))
    empty_part = gzip.compress(b"")
    damaged_bodies = (
        intact[:-1],
        intact[:20],
        intact + b"x",
        intact[:15] + b"\xff" + intact[16:],
        b"{}",
        b"",
        empty_part * 1_000,
    )
    generic_sender = new_sender(client)
    provider_sender = new_sender(client, provider="postmark")
    headers = {"Authorization": f"Bearer {provider_sender['secret']}", **GZIP_HEADERS}
    for body in damaged_bodies:
        signed_headers = signed(generic_sender["secret"], body) | GZIP_HEADERS
        reply = post_body(client, generic_sender["id"], body, signed_headers)
        problem(reply, 422, "report.invalid")
        assert data(post_body(client, provider_sender["id"], body, headers)) == 1
    settle(stack, provider_sender)
    assert outcomes(client, provider_sender) == ["invalid"] * len(damaged_bodies)
    in_two_parts = gzip.compress(b"[") + gzip.compress(b"]")
    assert data(post_body(client, provider_sender["id"], in_two_parts, headers)) == 1
    settle(stack, provider_sender)
    assert len(outcomes(client, provider_sender)) == len(damaged_bodies)
