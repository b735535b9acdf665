"""Tests of the lines that need the attention of an owner."""

import httpx2

from devstack.harness.stack import Owner, Stack
from services import attention
from services.attention import AttentionKind, AttentionLine, NextStep
from services.senders import states
from services.senders.intake import MAX_REFUSED_CALLS_PER_HOUR
from services.senders.notices import FailureReason
from tests.support.http.replies import data
from tests.support.http.webhook_receiver import HookReceiver
from tests.support.imports.bulk import add, build_address_file, import_members_file, upload
from tests.support.lists.subscribers import new_address, new_list
from tests.support.senders.own_senders import new_sender
from tests.support.senders.posting import deliver, reject_calls, report

UNREADABLE_FILE = b"City\r\nRome\r\n"


def list_lines(stack: Stack, owner: Owner) -> list[AttentionLine]:
    with stack.resources.unit_of_work() as uow:
        return attention.list_lines(uow, owner.account_id)


def dismiss_line(stack: Stack, owner: Owner, line: AttentionLine) -> bool:
    with stack.resources.unit_of_work() as uow:
        return attention.dismiss_line(uow, owner.account_id, line.kind, line.subject_id)


def test_later_import_of_the_same_file_removes_the_failed_import(
    stack: Stack, client: httpx2.Client, owner: Owner, list_id: int
) -> None:
    assert upload(client, list_id, UNREADABLE_FILE, "readers.csv").status_code == 422
    [line] = list_lines(stack, owner)
    assert (line.kind, line.name) == (AttentionKind.IMPORT, "readers.csv")
    assert line.next_step is NextStep.UPLOAD_AGAIN
    [(finished_at,)] = stack.query("SELECT finished_at FROM imports WHERE id = %s", line.subject_id)
    assert line.at == finished_at
    file = build_address_file(new_address())
    import_members_file(client, list_id, file, "others.csv")
    import_members_file(client, new_list(client)["id"], file, "readers.csv")
    data(upload(client, list_id, file, "readers.csv", dry_run="1"))
    assert list_lines(stack, owner) == [line]
    import_members_file(client, list_id, file, "readers.csv")
    assert list_lines(stack, owner) == []


def test_later_api_import_does_not_remove_another_failed_api_import(
    stack: Stack, client: httpx2.Client, owner: Owner, list_id: int
) -> None:
    """API requests with members have no file name, so nothing shows that they repeat each other."""
    data(add(client, list_id, new_address()))
    stack.query("UPDATE imports SET status = 'failed' WHERE user_id = %s", owner.user_id)
    [line] = list_lines(stack, owner)
    assert (line.kind, line.name) == (AttentionKind.IMPORT, None)
    data(add(client, list_id, new_address()))
    import_members_file(client, list_id, build_address_file(new_address()))
    assert list_lines(stack, owner) == [line]


def test_dismissed_import_stays_away_until_the_next_failure(
    stack: Stack, client: httpx2.Client, owner: Owner, list_id: int
) -> None:
    assert upload(client, list_id, UNREADABLE_FILE, "readers.csv").status_code == 422
    [line] = list_lines(stack, owner)
    assert not dismiss_line(stack, stack.create_owner(), line)
    assert list_lines(stack, owner) == [line]
    assert dismiss_line(stack, owner, line)
    assert list_lines(stack, owner) == []
    assert upload(client, list_id, UNREADABLE_FILE, "readers.csv").status_code == 422
    [next_line] = list_lines(stack, owner)
    assert next_line.subject_id > line.subject_id


def test_failing_webhook_is_shown_until_it_works_or_is_dismissed(
    stack: Stack, client: httpx2.Client, owner: Owner, receiver: HookReceiver
) -> None:
    body = {"url": receiver.url, "types": ["subscription.created"]}
    endpoint_id = data(client.post("/webhook-endpoints", json=body))["id"]
    assert list_lines(stack, owner) == []

    def fail(age: str) -> None:
        stack.query(
            "UPDATE webhook_endpoints SET failing_since = now() - %s::interval WHERE id = %s",
            *(age, endpoint_id),
        )

    fail("1 hour")
    [line] = list_lines(stack, owner)
    assert (line.kind, line.name, line.next_step) == (
        AttentionKind.WEBHOOK,
        receiver.url,
        NextStep.CHECK_RECEIVER,
    )
    assert dismiss_line(stack, owner, line)
    assert list_lines(stack, owner) == []
    fail("-1 minute")
    [line] = list_lines(stack, owner)
    stack.query("UPDATE webhook_endpoints SET state = 'paused' WHERE id = %s", endpoint_id)
    [line] = list_lines(stack, owner)
    assert line.next_step is NextStep.RESUME_WEBHOOK
    data(client.patch(f"/webhook-endpoints/{endpoint_id}", json={"state": "active"}))
    assert list_lines(stack, owner) == []


def test_dismissed_failure_of_a_webhook_does_not_hide_its_pause(
    stack: Stack, client: httpx2.Client, owner: Owner, receiver: HookReceiver
) -> None:
    body = {"url": receiver.url, "types": ["subscription.created"]}
    endpoint_id = data(client.post("/webhook-endpoints", json=body))["id"]
    stack.query(
        "UPDATE webhook_endpoints SET failing_since = now() - interval '3 days' WHERE id = %s",
        endpoint_id,
    )
    [line] = list_lines(stack, owner)
    assert line.next_step is NextStep.CHECK_RECEIVER
    assert dismiss_line(stack, owner, line)
    assert list_lines(stack, owner) == []
    data(client.patch(f"/webhook-endpoints/{endpoint_id}", json={"state": "paused"}))
    [paused_line] = list_lines(stack, owner)
    assert paused_line.next_step is NextStep.RESUME_WEBHOOK
    assert paused_line.at > line.at
    assert dismiss_line(stack, owner, paused_line)
    assert list_lines(stack, owner) == []


def test_failing_sender_is_shown_until_it_works_or_is_dismissed(
    stack: Stack, client: httpx2.Client, owner: Owner
) -> None:
    sender = new_sender(client)
    reject_calls(client, sender, count=MAX_REFUSED_CALLS_PER_HOUR)
    [line] = list_lines(stack, owner)
    assert (line.kind, line.subject_id, line.name) == (
        AttentionKind.SENDER,
        sender["id"],
        sender["name"],
    )
    assert line.next_step is NextStep.CHECK_PROVIDER
    assert line.reasons == (FailureReason.CALLS_REJECTED,)
    assert not dismiss_line(stack, stack.create_owner(), line)
    assert dismiss_line(stack, owner, line)
    # More rejected calls are still the same failure.
    reject_calls(client, sender, count=1)
    assert list_lines(stack, owner) == []
    deliver(stack, client, sender, report("delivered", email=new_address()))
    stack.query(
        "UPDATE sender_counts SET hour = hour - interval '1 hour' WHERE sender_id = %s",
        sender["id"],
    )
    reject_calls(client, sender, count=MAX_REFUSED_CALLS_PER_HOUR)
    [next_line] = list_lines(stack, owner)
    assert next_line.at > line.at
    deliver(stack, client, sender, report("delivered", email=new_address()))
    assert list_lines(stack, owner) == []


def test_sender_that_fails_for_another_reason_is_shown_again(
    stack: Stack, client: httpx2.Client, owner: Owner
) -> None:
    sender = new_sender(client)
    reject_calls(client, sender, count=MAX_REFUSED_CALLS_PER_HOUR)
    [line] = list_lines(stack, owner)
    assert dismiss_line(stack, owner, line)
    with stack.resources.unit_of_work() as uow:
        states.mark_failing(uow, sender["id"], FailureReason.TOPIC_UNSUBSCRIBED)
    [next_line] = list_lines(stack, owner)
    assert next_line.reasons == (
        FailureReason.CALLS_REJECTED,
        FailureReason.TOPIC_UNSUBSCRIBED,
    )


def test_paused_sender_is_shown_only_if_its_api_key_expired(
    stack: Stack, client: httpx2.Client, owner: Owner
) -> None:
    sender = new_sender(client)
    data(client.patch(f"/senders/{sender['id']}", json={"state": "paused"}))
    assert list_lines(stack, owner) == []
    stack.query(
        "UPDATE api_keys SET expires_at = now() - interval '1 minute'"
        " WHERE id = (SELECT key_id FROM senders WHERE id = %s)",
        sender["id"],
    )
    [line] = list_lines(stack, owner)
    assert (line.subject_id, line.next_step) == (sender["id"], NextStep.RESUME_SENDER)
    stack.query("UPDATE senders SET deleted_at = now() WHERE id = %s", sender["id"])
    assert list_lines(stack, owner) == []
