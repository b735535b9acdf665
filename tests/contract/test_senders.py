"""Tests of the API and the commands that create, change and delete senders."""

import base64
from datetime import timedelta
from itertools import pairwise
from typing import Any

import httpx2
import pytest

from core import clock
from core.scopes import Scope
from devstack.harness.polling import eventually
from devstack.harness.stack import Owner, Stack
from services.senders.senders import MAX_SENDERS
from services.webhooks import endpoints_of_keys
from tests.support.commands.running import pressroom, run_json_command
from tests.support.http.replies import data, problem
from tests.support.lists.subscribers import new_list
from tests.support.people.changed_addresses import change_address
from tests.support.people.erasure import erase
from tests.support.senders.own_senders import new_sender
from tests.support.senders.posting import deliver, report
from tests.support.stack.maintenance import run_maintenance

SENDERS_PATH = "/senders"
SIGNING_SECRET = "whsec_" + base64.b64encode(b"s" * 24).decode()
TOPIC_ARN = "arn:aws:sns:eu-west-1:123456789012:mail"


def read_states(client: httpx2.Client) -> dict[int, str]:
    return {each["id"]: each["state"] for each in data(client.get(SENDERS_PATH))}


def test_new_sender_is_reported_by_mail_and_its_secret_is_shown_once(
    stack: Stack, owner: Owner, client: httpx2.Client
) -> None:
    sender = new_sender(client)
    secret = sender.pop("secret")
    assert secret.startswith("whsec_")
    assert sender.pop("username") is None
    expected: dict[str, Any] = {"name": "Our mail server", "provider": "generic", "list_ids": None}
    expected |= {"any_list": False, "state": "waiting", "last_report_at": None}
    expected |= {"last_refused_at": None, "refused_24h": 0, "outcomes_24h": {}, "warnings": []}
    assert expected.items() <= sender.items()
    assert sender["url"] == f"{stack.settings().public_base}/senders/{sender['id']}/events"
    assert data(client.get(f"{SENDERS_PATH}/{sender['id']}")) == sender
    assert data(client.get(SENDERS_PATH)) == [sender]
    mails = eventually(lambda: stack.mails(owner.email), what="the mail")
    assert "sender" in mails[0]["subject"]
    stored_secrets = stack.query("SELECT s::text FROM sender_secrets AS s")
    assert not any(secret.removeprefix("whsec_")[:20] in str(row) for row in stored_secrets)


@pytest.mark.parametrize("provider", ["postmark", "brevo"])
def test_sender_for_http_basic_gets_a_user_name_and_a_secret(
    client: httpx2.Client, provider: str
) -> None:
    sender = new_sender(client, provider=provider)
    assert sender["username"] == "pressroom"
    assert len(sender["secret"]) >= 40


def test_provider_with_keys_of_its_own_requires_its_key_and_never_shows_it(
    stack: Stack, client: httpx2.Client
) -> None:
    for provider, name, key in (
        ("mailgun", "signing_key", "mailgun-signing-key"),
        ("resend", "signing_secret", SIGNING_SECRET),
    ):
        body: dict[str, Any] = {"name": "x", "provider": provider}
        problem(client.post(SENDERS_PATH, json=body), 422, "sender.key_invalid")
        sender = new_sender(client, **body, **{name: key})
        assert sender["secret"] is None
        assert key not in client.get(f"{SENDERS_PATH}/{sender['id']}").text
    stored_secrets = stack.query("SELECT s::text FROM sender_secrets AS s")
    assert not any("mailgun-signing-key" in str(row) for row in stored_secrets)


@pytest.mark.parametrize(
    ("provider", "fields", "code"),
    [
        ("generic", {"signing_key": "k"}, "sender.key_invalid"),
        ("mailgun", {"signing_key": " "}, "sender.key_invalid"),
        ("resend", {"signing_secret": "whsec_ü"}, "sender.key_invalid"),
        ("sendgrid", {"public_key": "AAAA"}, "sender.key_invalid"),
        ("generic", {"topic_arn": TOPIC_ARN}, "sender.topic_invalid"),
        ("generic", {"name": " "}, "body.invalid"),
        ("generic", {"list_ids": []}, "body.invalid"),
        ("sparkpost", {}, "body.invalid"),
    ],
)
def test_sender_with_invalid_settings_is_rejected(
    client: httpx2.Client, provider: str, fields: dict[str, Any], code: str
) -> None:
    body = {"name": "x", "provider": provider, **fields}
    problem(client.post(SENDERS_PATH, json=body), 422, code)
    assert data(client.get(SENDERS_PATH)) == []


def test_id_of_a_sender_reveals_no_other_id_and_the_ids_of_earlier_releases_stay_valid(
    stack: Stack, owner: Owner, client: httpx2.Client
) -> None:
    sender_ids = [new_sender(client)["id"] for _ in range(8)]
    options = ("--provider", "generic", "--name", "x")
    command_sender_id = run_json_command(stack, "senders", "create", owner.email, *options)["id"]
    sender_ids.append(command_sender_id)
    assert all(0 < each < 2**53 for each in sender_ids)
    assert min(abs(a - b) for a, b in pairwise(sorted(sender_ids))) > 1_000
    assert max(sender_ids) > 2**40
    assert [each["id"] for each in data(client.get(SENDERS_PATH))] == sender_ids[::-1]
    # Release 1.1.0 stores no id, so that the database numbers the senders.
    [(old_id,)] = stack.query(
        "INSERT INTO senders (user_id, name, provider) VALUES (%s, 'old', 'generic') RETURNING id",
        owner.user_id,
    )
    old_sender = {"id": old_id, "secret": data(client.post(f"/senders/{old_id}/rotate"))["secret"]}
    deliver(stack, client, old_sender, report("delivered", email="a@b.example"))
    assert [each["id"] for each in data(client.get(SENDERS_PATH))] == [old_id, *sender_ids[::-1]]


def test_sender_covers_only_lists_of_its_owner(
    client: httpx2.Client, other_owner: httpx2.Client, list_id: int
) -> None:
    foreign_list_id = new_list(other_owner)["id"]
    body = {"name": "x", "provider": "generic", "list_ids": [list_id, foreign_list_id]}
    problem(client.post(SENDERS_PATH, json=body), 404, "list.not_found")
    sender = new_sender(client, list_ids=[list_id, list_id])
    assert sender["list_ids"] == [list_id]
    path = f"{SENDERS_PATH}/{sender['id']}"
    problem(client.patch(path, json={"list_ids": [foreign_list_id]}), 404, "list.not_found")
    assert data(client.patch(path, json={"list_ids": None}))["list_ids"] is None


def test_sender_requires_its_scope(stack: Stack, owner: Owner) -> None:
    with stack.client(stack.create_key(owner.user_id, Scope.SENDER)) as sender_client:
        sender = new_sender(sender_client)
        assert [each["id"] for each in data(sender_client.get(SENDERS_PATH))] == [sender["id"]]
    with stack.client(stack.create_key(owner.user_id, Scope.WEBHOOK)) as webhook_client:
        problem(webhook_client.get(SENDERS_PATH), 403, "auth.insufficient_scope")


def test_sender_for_any_list_needs_the_scope_delivery(
    stack: Stack, owner: Owner, client: httpx2.Client
) -> None:
    body = {"name": "x", "provider": "generic", "any_list": True}
    problem(client.post(SENDERS_PATH, json=body), 403, "sender.needs_delivery")
    own_sender_id = new_sender(client)["id"]
    problem(
        client.patch(f"{SENDERS_PATH}/{own_sender_id}", json={"any_list": True}),
        403,
        "sender.needs_delivery",
    )
    key = stack.create_key(owner.user_id, Scope.SENDER, Scope.DELIVERY)
    with stack.client(key) as delivery_client:
        sender = new_sender(delivery_client, any_list=True)
        assert sender["any_list"] is True
        # Only API keys with the scope ``DELIVERY`` may rotate the secret of this sender, because
        # anyone with the secret can post reports about any list.
        problem(client.post(f"{SENDERS_PATH}/{sender['id']}/rotate"), 403, "sender.needs_delivery")
        data(delivery_client.post(f"{SENDERS_PATH}/{sender['id']}/rotate"))


def test_sender_for_any_list_is_resumed_with_another_key_only_with_the_scope_delivery(
    stack: Stack, owner: Owner, client: httpx2.Client
) -> None:
    key = stack.create_key(owner.user_id, Scope.SENDER, Scope.DELIVERY)
    with stack.client(key) as delivery_client:
        sender = new_sender(delivery_client, any_list=True)
    path = f"{SENDERS_PATH}/{sender['id']}"
    stack.query("UPDATE api_keys SET expires_at = now() WHERE id = %s", sender["key_id"])
    run_maintenance(stack, endpoints_of_keys.PROCESS_EXPIRED_KEYS.name)
    problem(client.patch(path, json={"state": "working"}), 403, "sender.needs_delivery")
    other_key = stack.create_key(owner.user_id, Scope.SENDER, Scope.DELIVERY)
    with stack.client(other_key) as delivery_client:
        assert data(delivery_client.patch(path, json={"state": "working"}))["state"] == "waiting"


def test_account_has_at_most_20_senders(stack: Stack, owner: Owner, client: httpx2.Client) -> None:
    sender_ids = [new_sender(client)["id"] for _ in range(MAX_SENDERS)]
    body = {"name": "x", "provider": "generic"}
    error = problem(client.post(SENDERS_PATH, json=body), 409, "sender.too_many")
    options = ("--provider", "generic", "--name", "x")
    process = pressroom(stack, "senders", "create", owner.email, *options)
    assert process.returncode != 0
    assert error["message"] in process.stderr
    assert len(data(client.get(SENDERS_PATH))) == MAX_SENDERS
    assert data(client.delete(f"{SENDERS_PATH}/{sender_ids[0]}")) == 1
    problem(client.get(f"{SENDERS_PATH}/{sender_ids[0]}"), 404, "sender.not_found")
    new_sender(client)


def test_sender_is_paused_and_resumed(client: httpx2.Client) -> None:
    path = f"{SENDERS_PATH}/{new_sender(client)['id']}"
    assert data(client.patch(path, json={"state": "paused"}))["state"] == "paused"
    problem(client.patch(path, json={"state": "failing"}), 422, "body.invalid")
    assert data(client.patch(path, json={"state": "working"}))["state"] == "waiting"


def test_former_secret_expires_a_day_after_a_rotation(stack: Stack, client: httpx2.Client) -> None:
    sender = new_sender(client)
    path = f"{SENDERS_PATH}/{sender['id']}"
    new_secret = data(client.post(f"{path}/rotate"))["secret"]
    assert new_secret not in {None, sender["secret"]}
    expiry_rows = stack.query(
        "SELECT expires_at FROM sender_secrets WHERE sender_id = %s ORDER BY id", sender["id"]
    )
    [(former_expiry,), (newest_expiry,)] = expiry_rows
    assert newest_expiry is None
    assert abs(former_expiry - clock.now() - timedelta(days=1)) < timedelta(minutes=5)  # type: ignore[operator]
    mailgun = new_sender(client, provider="mailgun", signing_key="k")
    problem(client.post(f"{SENDERS_PATH}/{mailgun['id']}/rotate"), 422, "sender.key_invalid")
    reply = client.patch(f"{SENDERS_PATH}/{mailgun['id']}", json={"signing_key": "another"})
    assert data(reply)["provider"] == "mailgun"
    count_secrets = "SELECT count(*) FROM sender_secrets WHERE sender_id = %s"
    assert stack.query(count_secrets, mailgun["id"]) == [(2,)]


@pytest.mark.parametrize(("query", "remains"), [("", False), ("?keep_endpoints=1", True)])
def test_revoking_a_key_deletes_its_senders_unless_they_are_kept(
    stack: Stack, owner: Owner, client: httpx2.Client, query: str, remains: bool
) -> None:
    key = data(client.post("/apikeys", json={"name": "k", "scopes": ["sender"]}))
    with stack.client(key["key"]) as program:
        sender = new_sender(program)
    assert sender["key_id"] == key["id"]
    data(client.delete(f"/apikeys/{key['id']}{query}"))
    keys_of_senders = {each["id"]: each["key_id"] for each in data(client.get(SENDERS_PATH))}
    assert keys_of_senders == ({sender["id"]: None} if remains else {})


def test_rotation_moves_a_sender_to_the_key_of_the_caller(
    stack: Stack, owner: Owner, client: httpx2.Client
) -> None:
    key = data(client.post("/apikeys", json={"name": "k", "scopes": ["sender"]}))
    with stack.client(key["key"]) as program:
        sender = new_sender(program)
    data(client.post(f"{SENDERS_PATH}/{sender['id']}/rotate"))
    data(client.delete(f"/apikeys/{key['id']}"))
    assert list(read_states(client)) == [sender["id"]]


def test_expired_key_pauses_its_senders_and_tells_the_owner(
    stack: Stack, owner: Owner, client: httpx2.Client
) -> None:
    key = data(client.post("/apikeys", json={"name": "k", "scopes": ["sender"]}))
    with stack.client(key["key"]) as program:
        sender = new_sender(program)
    stack.query("UPDATE api_keys SET expires_at = now() WHERE id = %s", key["id"])
    run_maintenance(stack, endpoints_of_keys.PROCESS_EXPIRED_KEYS.name)
    assert read_states(client) == {sender["id"]: "paused"}
    expected_text = f"sender {sender['id']}"
    eventually(
        lambda: any(expected_text in mail["text"] for mail in stack.mails(owner.email)),
        what="the mail about the key",
    )
    # Resuming the sender replaces its expired API key with the caller's key.
    resumed_sender = data(client.patch(f"{SENDERS_PATH}/{sender['id']}", json={"state": "working"}))
    assert resumed_sender["key_id"] != key["id"]
    run_maintenance(stack, endpoints_of_keys.PROCESS_EXPIRED_KEYS.name)
    assert read_states(client) == {sender["id"]: "waiting"}


def test_events_of_the_account_record_each_change_of_a_sender(client: httpx2.Client) -> None:
    sender = new_sender(client)
    data(client.patch(f"{SENDERS_PATH}/{sender['id']}", json={}))
    data(client.patch(f"{SENDERS_PATH}/{sender['id']}", json={"name": "Another"}))
    data(client.delete(f"{SENDERS_PATH}/{sender['id']}"))
    items = data(client.get("/users/me/security-events"))["items"]
    types = [each["type"] for each in items if each["type"].startswith("sender.")]
    assert types == ["sender.ended", "sender.changed", "sender.created"]


_INSERT_REPORT = """
INSERT INTO sender_reports (sender_id, received_at, occurred_at, kind, outcome, user_id, recipient)
SELECT %s, now(), now(), %s, %s, %s, %s FROM generate_series(1, %s)
"""


def test_recent_reports_are_paged_and_filtered(
    stack: Stack, client: httpx2.Client, other_owner: httpx2.Client
) -> None:
    sender_id = new_sender(client)["id"]
    path = f"{SENDERS_PATH}/{sender_id}/reports"
    stack.query(_INSERT_REPORT, sender_id, "bounced", "applied", 5, None, 3)
    stack.query(_INSERT_REPORT, sender_id, "opened", "off", 5, None, 4)
    stack.query(_INSERT_REPORT, sender_id, None, "ignored", None, "a…@e….org", 1)
    all_reports = data(client.get(path))["items"]
    assert [each["outcome"] for each in all_reports] == ["ignored"] + ["off"] * 4 + ["applied"] * 3
    paged_reports: list[dict[str, Any]] = []
    cursor: str | None = None
    while cursor is not None or not paged_reports:
        query = {"limit": "3"} | ({"cursor": cursor} if cursor else {})
        page = data(client.get(path, params=query))
        paged_reports += page["items"]
        cursor = page["pagination"]["next_cursor"]
    assert paged_reports == all_reports
    bounces = data(client.get(path, params={"kind": "bounced", "outcome": "applied"}))
    assert [each["user_id"] for each in bounces["items"]] == [5, 5, 5]
    assert data(client.get(path, params={"outcome": "stale"}))["items"] == []
    problem(other_owner.get(path), 404, "sender.not_found")


def test_erasure_blanks_reports_and_deletes_marks_of_the_person(
    stack: Stack, client: httpx2.Client, list_id: int
) -> None:
    person = stack.create_owner()
    former_email = "zoe@former.example"
    change_address(stack.resources, person.email, former_email)
    change_address(stack.resources, former_email, person.email)
    sender_id = new_sender(client)["id"]
    local_part, _, domain = person.email.partition("@")
    masked_address = f"{local_part[0]}…@{domain[0]}….{domain.rpartition('.')[2]}"
    stack.query(_INSERT_REPORT, sender_id, "bounced", "applied", person.user_id, None, 1)
    for recipient in (masked_address, "z…@f….example", "y…@f….example"):
        stack.query(_INSERT_REPORT, sender_id, "bounced", "unmatched", None, recipient, 1)
    insert_mark = (
        "INSERT INTO mailing_marks (user_id, list_id, mailing_id, kind) VALUES (%s, %s, 1, 'x')"
    )
    stack.query(insert_mark, person.user_id, list_id)
    erase(stack.resources, person.email)
    path = f"{SENDERS_PATH}/{sender_id}/reports"
    people_and_recipients = [
        (each["user_id"], each["recipient"]) for each in data(client.get(path))["items"]
    ]
    assert people_and_recipients == [(None, "y…@f….example"), *[(None, None)] * 3]
    assert not stack.query("SELECT 1 FROM mailing_marks WHERE user_id = %s", person.user_id)


def test_command_reads_the_key_of_a_provider_from_stdin_and_never_from_an_option(
    stack: Stack, owner: Owner, client: httpx2.Client
) -> None:
    create_sender = ("senders", "create", owner.email, "--name", "Ours", "--provider")
    resend_sender = run_json_command(
        stack, *create_sender, "resend", "--key-stdin", stdin=f"{SIGNING_SECRET}\n"
    )
    ses_sender = run_json_command(stack, *create_sender, "ses", "--topic-arn", TOPIC_ARN)
    assert (resend_sender["secret"], ses_sender["secret"]) == (None, None)
    assert SIGNING_SECRET not in str(resend_sender)
    assert [each["provider"] for each in data(client.get(SENDERS_PATH))] == ["ses", "resend"]
    assert stack.query("SELECT topic_arn FROM senders WHERE id = %s", ses_sender["id"]) == [
        (TOPIC_ARN,)
    ]
    for options, stdin, message in (
        (("mailgun",), "", "--key-stdin"),
        (("mailgun", "--key-stdin"), "", "sender.key_invalid"),
        (("resend", "--key-stdin"), "whsec_x", "sender.key_invalid"),
        (("generic", "--key-stdin"), "key", "--key-stdin"),
        (("ses",), "", "sender.topic_invalid"),
        (("brevo", "--topic-arn", TOPIC_ARN), "", "sender.topic_invalid"),
    ):
        process = pressroom(stack, *create_sender, *options, "--json", stdin=stdin)
        assert process.returncode != 0
        assert message in process.stderr
    assert len(data(client.get(SENDERS_PATH))) == 2


@pytest.mark.parametrize("name", ["", " ", "x" * 201])
def test_command_requires_a_name_of_1_to_200_characters(
    stack: Stack, owner: Owner, name: str
) -> None:
    options = ("--provider", "generic", "--name", name)
    process = pressroom(stack, "senders", "create", owner.email, *options)
    assert process.returncode == 2
    assert "must have 1 to 200 characters" in process.stderr


def test_commands_create_list_and_revoke_senders(
    stack: Stack, owner: Owner, client: httpx2.Client, list_id: int
) -> None:
    options = ("--provider", "generic", "--name", "Ours", "--list", str(list_id), "--any-list")
    sender = run_json_command(stack, "senders", "create", owner.email, *options)
    assert sender["secret"].startswith("whsec_")
    [record] = data(client.get(SENDERS_PATH))
    assert (record["id"], record["list_ids"], record["any_list"]) == (sender["id"], [list_id], True)
    assert record["url"] == sender["url"]
    [listed_sender] = run_json_command(stack, "senders", "list", owner.email)
    assert listed_sender["id"] == sender["id"]
    assert run_json_command(stack, "senders", "revoke", str(sender["id"]))["revoked"] == 1
    assert data(client.get(SENDERS_PATH)) == []
