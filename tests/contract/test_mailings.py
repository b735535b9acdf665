"""Tests of mailings, with the numbers of deliveries and bounces that senders reported."""

from datetime import datetime, timedelta

import httpx2

from devstack.harness.stack import Stack
from tests.support.http.replies import data, problem
from tests.support.imports.bulk import add
from tests.support.lists.subscribers import new_address, new_list, require_member
from tests.support.senders.mailings import new_mailing
from tests.support.senders.own_senders import new_sender
from tests.support.senders.posting import bounce, deliver, delivery_for, report


def test_mailing_counts_the_members_that_senders_reported(
    stack: Stack, client: httpx2.Client, delivery_client: httpx2.Client, list_id: int
) -> None:
    emails = [new_address() for _ in range(3)]
    data(add(client, list_id, *emails))
    export_request = {"kind": "delivery", "label": "September letter"}
    job = data(delivery_client.post(f"/lists/{list_id}/exports", json=export_request))
    delivery_ids = [
        delivery_for(stack, list_id, require_member(client, list_id, email)["user_id"], job["id"])
        for email in emails
    ]
    deliver(
        stack,
        client,
        new_sender(client),
        report("delivered", delivery_id=delivery_ids[0]),
        report("opened", delivery_id=delivery_ids[0]),
        report("clicked", delivery_id=delivery_ids[0]),
        bounce("hard", "5.1.1", delivery_id=delivery_ids[1]),
        bounce("soft", "4.2.2", delivery_id=delivery_ids[2]),
    )
    path = f"/lists/{list_id}/mailings"
    mailing = data(client.get(f"{path}/{job['id']}"))
    created_at = datetime.fromisoformat(mailing.pop("created_at"))
    assert datetime.fromisoformat(mailing.pop("reports_until")) == created_at + timedelta(days=30)
    assert mailing == {
        "id": job["id"],
        "label": "September letter",
        "rows": 3,
        "measured": 0,
        "delivered": 1,
        "hard_bounced": 1,
        "soft_bounced": 1,
        "blocked": 0,
        "complained": 0,
        "unsubscribed": 0,
        "left": 0,
        # The list doesn't record opens and clicks.
        "opened": None,
        "machine_opened": None,
        "clicked": None,
    }
    [listed_mailing] = data(client.get(path))["items"]
    assert listed_mailing.items() >= mailing.items()


def test_mailing_is_found_only_on_its_own_list(
    stack: Stack, client: httpx2.Client, other_owner: httpx2.Client, list_id: int
) -> None:
    mailing_id = new_mailing(stack, list_id, rows=1)
    other_list_id = new_list(client)["id"]
    problem(client.get(f"/lists/{other_list_id}/mailings/{mailing_id}"), 404, "mailing.not_found")
    assert data(client.get(f"/lists/{other_list_id}/mailings"))["items"] == []
    problem(client.get(f"/lists/{list_id}/mailings/1"), 404, "mailing.not_found")
    for path in ("mailings", f"mailings/{mailing_id}"):
        problem(other_owner.get(f"/lists/{list_id}/{path}"), 403, "list.not_owner")


def test_owner_renames_a_mailing(
    stack: Stack, client: httpx2.Client, other_owner: httpx2.Client, list_id: int
) -> None:
    mailing_id = new_mailing(stack, list_id, rows=3, label="Mailing")
    path = f"/lists/{list_id}/mailings/{mailing_id}"
    assert data(client.patch(path, json={"label": "October letter"}))["label"] == "October letter"
    problem(client.patch(path, json={}), 422, "body.invalid")
    problem(client.patch(path, json={"label": "a" * 101}), 422, "body.invalid")
    problem(client.patch(path, json={"label": 5}), 422, "body.invalid")
    problem(other_owner.patch(path, json={"label": "Mine"}), 403, "list.not_owner")
    other_path = f"/lists/{new_list(client)['id']}/mailings/{mailing_id}"
    problem(client.patch(other_path, json={"label": "Mine"}), 404, "mailing.not_found")
    assert data(client.get(path))["label"] == "October letter"
    assert data(client.patch(path, json={"label": None}))["label"] is None
