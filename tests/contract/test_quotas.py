"""Tests of the quotas of each plan, which limit owners but never readers."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from core.scopes import Scope
from devstack.harness.polling import eventually
from devstack.harness.stack import Owner, Stack
from models import Plan
from services.access.quotas import count_row_bytes
from tests.support.composer.composing import METADATA, make_unique_post, request_composer
from tests.support.http.replies import data, problem, send
from tests.support.http.webhook_receiver import new_endpoint, running_receiver
from tests.support.images.pictures import noise, photo
from tests.support.imports.bulk import (
    ADDED_COLUMNS,
    active_members,
    add,
    build_csv,
    export,
    fetch_rejected_rows,
    upload,
)
from tests.support.lists.segments import (
    VIP,
    bulk_action,
    filter_of_bytes,
    new_segment,
    run_bulk_action,
)
from tests.support.lists.subscribers import (
    await_mails,
    new_address,
    new_list,
    new_reader,
    require_member,
)
from tests.support.people.quotas import (
    MAX_MEMBERS,
    MB,
    begin_jobs,
    end_jobs,
    leave_room_for_members,
    set_stored_bytes,
    stored_bytes,
)
from tests.support.stack.maintenance import run_maintenance

# This filter has no tags, so that its stored form always has the same length. The stored form of a
# filter contains the ids of the filter's tags, and ids vary in length.
GOLD_FILTER = {"field": "type", "is": "gold"}
ROW_BYTES = count_row_bytes()
FREE_QUOTAS = {
    "members": 1000,
    "lists": 5,
    "storage_mb": 500,
    "keys": 10,
    "unfinished_jobs": 3,
    "composer_per_day": 50,
}


@pytest.fixture
def free_owner(stack: Stack) -> Iterator[Owner]:
    """An owner on the free plan with one API key."""
    owner = stack.create_owner(plan=Plan.FREE)
    yield owner
    end_jobs(stack, owner.user_id)


@pytest.fixture
def free_client(stack: Stack, free_owner: Owner) -> Iterator[httpx2.Client]:
    """An API client of the fixture `free_owner`, who is on the free plan."""
    with stack.client(free_owner.key) as client:
        yield client


def read_quotas(client: httpx2.Client) -> dict[str, dict[str, Any]]:
    return dict(data(client.get("/users/me"))["quotas"])


def require_exceeded(reply: httpx2.Response, quota: str, *, used: int, limit: int) -> None:
    body = problem(reply, 403, "quota.exceeded")
    assert (body["quota"], body["used"], body["limit"]) == (quota, used, limit)
    for value in (quota, used, limit):
        assert str(value) in body["detail"]


def set_plan(stack: Stack, owner: Owner, plan: Plan) -> None:
    stack.query("UPDATE users SET plan = %s WHERE id = %s", plan, owner.user_id)


def test_free_plan_has_the_documented_quotas(free_client: httpx2.Client) -> None:
    me = data(free_client.get("/users/me"))
    expected_use = dict.fromkeys(FREE_QUOTAS, 0) | {"keys": 1}
    assert me["plan"] == "free"
    assert me["quotas"] == {
        name: {"used": expected_use[name], "limit": limit} for name, limit in FREE_QUOTAS.items()
    }


def test_paid_plan_limits_only_members(client: httpx2.Client) -> None:
    plan_quotas = read_quotas(client)
    assert plan_quotas.pop("members") == {"used": 0, "limit": MAX_MEMBERS}
    assert set(plan_quotas) == set(FREE_QUOTAS) - {"members"}
    assert {plan_quota["limit"] for plan_quota in plan_quotas.values()} == {None}


def test_list_beyond_the_plan_is_rejected_and_archived_lists_do_not_count(
    free_client: httpx2.Client,
) -> None:
    created_lists = [new_list(free_client) for _ in range(5)]
    body = {"title": "One more", "slug": "one-more"}
    require_exceeded(free_client.post("/lists", json=body), "lists", used=5, limit=5)
    assert read_quotas(free_client)["lists"] == {"used": 5, "limit": 5}
    # Archived lists don't count towards the quota.
    data(free_client.delete(f"/lists/{created_lists[0]['id']}"))
    new_list(free_client)
    require_exceeded(free_client.post("/lists", json=body), "lists", used=5, limit=5)


def test_downgrade_keeps_existing_lists_but_prevents_new_lists(
    stack: Stack, client: httpx2.Client, owner: Owner
) -> None:
    created_ids = [new_list(client)["id"] for _ in range(7)]
    set_plan(stack, owner, Plan.FREE)
    listed_ids = [each["id"] for each in data(client.get("/lists"))["items"]]
    assert sorted(listed_ids) == sorted(created_ids)
    assert read_quotas(client)["lists"] == {"used": 7, "limit": 5}
    body = {"title": "One more", "slug": "one-more"}
    require_exceeded(client.post("/lists", json=body), "lists", used=7, limit=5)
    data(client.patch(f"/lists/{created_ids[0]}", json={"title": "Another title"}))


def test_api_key_beyond_the_plan_is_rejected_and_revoked_or_expired_keys_do_not_count(
    stack: Stack, free_client: httpx2.Client
) -> None:
    key_ids = [data(free_client.post("/apikeys", json={"name": "n"}))["id"] for _ in range(9)]
    require_exceeded(free_client.post("/apikeys", json={"name": "n"}), "keys", used=10, limit=10)
    # Expired keys and revoked keys don't count towards the quota.
    stack.query("UPDATE api_keys SET expires_at = now() WHERE id = %s", key_ids[0])
    data(free_client.delete(f"/apikeys/{key_ids[1]}"))
    assert read_quotas(free_client)["keys"] == {"used": 8, "limit": 10}
    for _ in range(2):
        data(free_client.post("/apikeys", json={"name": "n"}))
    require_exceeded(free_client.post("/apikeys", json={"name": "n"}), "keys", used=10, limit=10)


def test_storage_quota_counts_images_with_renditions_until_deletion(
    stack: Stack, free_owner: Owner, free_client: httpx2.Client
) -> None:
    picture = data(send(free_client, photo(700, 500), "p.jpg", renditions="1"))
    sizes = [each["size"] for each in (picture, picture["thumbnail"], *picture["renditions"])]
    assert len(sizes) == 5
    assert stored_bytes(stack, free_owner.user_id) == sum(sizes) > 0
    assert read_quotas(free_client)["storage_mb"] == {"used": 1, "limit": 500}
    data(free_client.delete(f"/attachments/{picture['hash_id']}"))
    assert stored_bytes(stack, free_owner.user_id) == 0
    assert read_quotas(free_client)["storage_mb"] == {"used": 0, "limit": 500}


def test_image_whose_renditions_exceed_the_storage_quota_is_rejected(
    stack: Stack, free_owner: Owner, free_client: httpx2.Client
) -> None:
    content = photo(700, 500, quality=60)
    attachment = data(send(free_client, content, "p.jpg"))
    assert attachment["size"] < len(content)
    data(free_client.delete(f"/attachments/{attachment['hash_id']}"))
    set_stored_bytes(stack, free_owner.user_id, 500 * MB - len(content))
    require_exceeded(
        send(free_client, content, "p.jpg", renditions="1"), "storage_mb", used=500, limit=500
    )
    assert stored_bytes(stack, free_owner.user_id) == 500 * MB - len(content)
    data(send(free_client, content, "p.jpg"))


def test_image_that_grows_beyond_the_storage_quota_during_conversion_is_rejected(
    stack: Stack, free_owner: Owner, free_client: httpx2.Client
) -> None:
    noisy_image = noise()
    assert data(send(free_client, noisy_image, "p.jpg"))["size"] > len(noisy_image)
    set_stored_bytes(stack, free_owner.user_id, 500 * MB - len(noisy_image))
    require_exceeded(send(free_client, noisy_image, "p.jpg"), "storage_mb", used=500, limit=500)
    assert stored_bytes(stack, free_owner.user_id) == 500 * MB - len(noisy_image)


def read_export_size(stack: Stack, owner: Owner) -> int:
    [(size,)] = stack.query("SELECT size FROM exports WHERE user_id = %s", owner.user_id)
    return int(str(size))


def test_storage_quota_counts_export_files(
    stack: Stack, owner: Owner, client: httpx2.Client
) -> None:
    list_id = new_list(client)["id"]
    data(add(client, list_id, *(new_address() for _ in range(3))))
    data(export(client, list_id, "members"))
    size = read_export_size(stack, owner)
    assert stored_bytes(stack, owner.user_id) == size + ROW_BYTES
    set_plan(stack, owner, Plan.FREE)
    set_stored_bytes(stack, owner.user_id, 500 * MB)
    require_exceeded(export(client, list_id, "members"), "storage_mb", used=500, limit=500)
    # The size of an export file is known only after the export.
    set_stored_bytes(stack, owner.user_id, 500 * MB - 1)
    require_exceeded(export(client, list_id, "members"), "storage_mb", used=500, limit=500)
    assert stored_bytes(stack, owner.user_id) == 500 * MB - 1


def test_storage_quota_counts_database_rows_until_they_are_deleted(
    stack: Stack, owner: Owner, client: httpx2.Client, list_id: int
) -> None:
    def read_stored_bytes() -> int:
        return stored_bytes(stack, owner.user_id)

    with running_receiver() as receiver:
        segment = new_segment(client, list_id, filter_of_bytes(9_000))
        assert read_stored_bytes() >= ROW_BYTES + 9_000
        path = f"/lists/{list_id}/segments/{segment['id']}"
        data(client.patch(path, json={"filter": GOLD_FILTER}))
        filter_bytes = len(json.dumps(GOLD_FILTER))
        assert read_stored_bytes() == ROW_BYTES + filter_bytes
        assert data(client.delete(path)) == 1
        assert read_stored_bytes() == 0
        run_bulk_action(client, list_id, "email_off", filter=GOLD_FILTER)
        assert read_stored_bytes() == ROW_BYTES + filter_bytes
        data(export(client, list_id, "members"))
        endpoint = new_endpoint(client, receiver.url)
        data(client.post(f"/webhook-endpoints/{endpoint['id']}/test"))
        export_bytes = read_export_size(stack, owner)
        row_bytes = 3 * ROW_BYTES + filter_bytes + len(receiver.body)
        eventually(
            lambda: read_stored_bytes() == export_bytes + row_bytes, what="the answer counted"
        )
        assert read_quotas(client)["storage_mb"]["used"] == 1
    # Rows that an owner can't delete are purged when they are old enough.
    assert data(client.delete(f"/webhook-endpoints/{endpoint['id']}")) == 1
    two_years_ago = "now() - interval '2 years'"
    for change in (
        f"bulk_actions SET created_at = {two_years_ago}, finished_at = {two_years_ago}",
        f"exports SET created_at = {two_years_ago}, files_removed_at = now()",
        # Deliveries of any age are purged together with their endpoint.
        f"webhook_endpoints SET deleted_at = {two_years_ago}",
    ):
        stack.query(f"UPDATE {change} WHERE user_id = %s", owner.user_id)
    run_maintenance(stack, "maintenance.purge")
    assert read_stored_bytes() == 0


def test_owner_without_storage_creates_no_rows_but_readers_can_still_join(
    stack: Stack, owner: Owner, client: httpx2.Client, list_id: int
) -> None:
    with running_receiver() as receiver:
        segment = new_segment(client, list_id, filter_of_bytes(9_000))
        endpoint = new_endpoint(client, receiver.url)
        with new_reader(stack) as reader:
            reader.joins(list_id)
        eventually(lambda: len(receiver.hooks) == 1, what="the first event")
        set_plan(stack, owner, Plan.FREE)
        set_stored_bytes(stack, owner.user_id, 500 * MB)
        segments_path = f"/lists/{list_id}/segments"
        endpoint_path = f"/webhook-endpoints/{endpoint['id']}"
        segment_path = f"{segments_path}/{segment['id']}"
        for reply in (
            client.post(segments_path, json={"name": "Another", "filter": VIP}),
            client.patch(segment_path, json={"filter": filter_of_bytes(9_001)}),
            bulk_action(client, list_id, "email_off", filter=VIP),
            export(client, list_id, "members"),
            client.post(f"{endpoint_path}/test"),
            client.post(f"{endpoint_path}/replay", json={"since": "2026-01-01T00:00:00Z"}),
        ):
            require_exceeded(reply, "storage_mb", used=500, limit=500)
        assert stored_bytes(stack, owner.user_id) == 500 * MB
        with new_reader(stack) as reader:
            reader.joins(list_id)
            assert reader.read_status(list_id) == ("active", True)
        eventually(lambda: len(receiver.hooks) == 2, what="the reader's event")
        select_answers = f"SELECT 1 FROM webhook_deliveries WHERE endpoint_id = {endpoint['id']}"
        select_answers += " AND status = 'delivered' AND answer IS NOT NULL"
        eventually(lambda: len(stack.query(select_answers)) == 2, what="the answers kept")
        # Deliveries about a reader's actions don't count towards the owner's storage quota.
        assert stored_bytes(stack, owner.user_id) == 500 * MB
        # Changes that need less storage are always possible.
        data(client.patch(segment_path, json={"filter": VIP}))
        data(client.post(segments_path, json={"name": "Another", "filter": VIP}))


def test_delivery_export_is_not_limited_by_quotas(
    stack: Stack, free_owner: Owner, free_client: httpx2.Client
) -> None:
    list_id = new_list(free_client)["id"]
    begin_jobs(stack, free_owner.user_id, 3)
    with stack.client(stack.create_key(free_owner.user_id, Scope.DELIVERY)) as sender:
        assert data(export(sender, list_id, "delivery"))["status"] == "succeeded"


def test_job_retry_beyond_the_quota_of_unfinished_jobs_is_rejected(
    stack: Stack, free_owner: Owner, free_client: httpx2.Client
) -> None:
    list_id = new_list(free_client)["id"]
    job = data(export(free_client, list_id, "members"))
    stack.query(
        "UPDATE jobs SET status = 'failed', error = %s WHERE id = %s",
        '{"kind": "unavailable", "code": "job.given_up", "message": "x"}',
        job["id"],
    )
    begin_jobs(stack, free_owner.user_id, 3)
    require_exceeded(
        free_client.post(f"/jobs/{job['id']}/retry"), "unfinished_jobs", used=4, limit=3
    )
    assert data(free_client.get(f"/jobs/{job['id']}"))["status"] == "failed"


def test_composer_calls_and_photo_searches_beyond_the_daily_quota_are_rejected(
    stack: Stack, free_owner: Owner, free_client: httpx2.Client
) -> None:
    post = make_unique_post()
    for used in (1, 2):
        assert request_composer(free_client, METADATA, post).status_code == 200
        assert read_quotas(free_client)["composer_per_day"] == {"used": used, "limit": 50}
    of_owner = "WHERE user_id = %s"
    stack.query(f"UPDATE composer_uses SET calls = 49 {of_owner}", free_owner.user_id)
    assert request_composer(free_client, METADATA, post).status_code == 200
    for _ in range(2):
        require_exceeded(
            request_composer(free_client, METADATA, post), "composer_per_day", used=50, limit=50
        )
    photo_reply = free_client.get("/composer/stockphoto/photos/search", params={"query": "bread"})
    require_exceeded(photo_reply, "composer_per_day", used=50, limit=50)
    # The daily quota starts at zero on the next day.
    stack.query(f"UPDATE composer_uses SET day = day - 1 {of_owner}", free_owner.user_id)
    assert read_quotas(free_client)["composer_per_day"] == {"used": 0, "limit": 50}
    assert request_composer(free_client, METADATA, post).status_code == 200
    assert read_quotas(free_client)["composer_per_day"] == {"used": 1, "limit": 50}


def test_import_beyond_the_member_quota_fails_but_records_every_opt_out(
    stack: Stack, client: httpx2.Client
) -> None:
    list_id = new_list(client)["id"]
    other_list_id = new_list(client)["id"]
    member = new_address()
    data(add(client, list_id, member))
    # The quota counts the members of all lists of the owner.
    leave_room_for_members(stack, other_list_id, room=4)
    new_emails = [new_address() for _ in range(5)]
    opted_out_email = new_address()
    rows = [[each, "subscribed"] for each in new_emails]
    rows[1:1] = [[member, "unsubscribed"]]
    file = build_csv(["Email", "Status"], *rows, [opted_out_email, "unsubscribed"])
    require_exceeded(
        upload(client, list_id, file), "members", used=MAX_MEMBERS - 1, limit=MAX_MEMBERS
    )
    security_events = data(client.get("/users/me/security-events"))["items"]
    assert sum(each["type"] == "quota.refused" for each in security_events) == 1
    assert set(active_members(client, list_id)) == set(new_emails[:3])
    assert require_member(client, list_id, member)["status"] == "unsubscribed"
    # The opt-out in the last row of the file is also recorded.
    assert data(add(client, list_id, opted_out_email)) == 0

    import_record = data(client.get("/imports"))["items"][1]
    assert (import_record["status"], import_record["error"]["code"]) == ("failed", "quota.exceeded")
    count_names = ("received", "added", "over_quota", "opted_out")
    assert [import_record[name] for name in count_names] == [7, 3, 2, 2]
    rejected_rows = [
        row
        for row in fetch_rejected_rows(import_record["errors_url"])
        if row["code"] == "quota.exceeded"
    ]
    assert [row["Email"] for row in rejected_rows] == new_emails[3:]
    assert set(ADDED_COLUMNS) <= set(rejected_rows[0])

    assert data(client.delete(f"/imports/{import_record['id']}/members")) == 3
    assert active_members(client, list_id) == {}
    assert require_member(client, list_id, member)["status"] == "unsubscribed"


def test_bulk_add_fills_the_member_quota_and_rejects_the_rest(
    stack: Stack, client: httpx2.Client
) -> None:
    list_id = new_list(client)["id"]
    leave_room_for_members(stack, list_id, room=2)
    new_emails = [new_address() for _ in range(3)]
    reply = add(client, list_id, *new_emails)
    require_exceeded(reply, "members", used=MAX_MEMBERS, limit=MAX_MEMBERS)
    assert set(active_members(client, list_id)) == set(new_emails[:2])
    # Adding members who are already active needs no quota.
    assert data(add(client, list_id, *new_emails[:2])) == 0


def test_concurrent_member_additions_never_exceed_the_member_quota(
    stack: Stack, client: httpx2.Client
) -> None:
    list_id, other_list_id = (new_list(client)["id"] for _ in range(2))
    leave_room_for_members(stack, list_id, room=2)
    paths = [f"/lists/{other_list_id}/members/{new_address()}" for _ in range(5)]
    with ThreadPoolExecutor(5) as pool:
        replies = list(pool.map(lambda path: client.put(path, json={}), paths))
    rejected_replies = [reply for reply in replies if reply.status_code != 200]
    assert len(rejected_replies) == 3
    for reply in rejected_replies:
        require_exceeded(reply, "members", used=MAX_MEMBERS, limit=MAX_MEMBERS)
    assert len(active_members(client, other_list_id)) == 2


def test_pending_members_and_members_of_archived_lists_do_not_count_towards_the_quota(
    stack: Stack, client: httpx2.Client
) -> None:
    full_id = new_list(client)["id"]
    list_id = new_list(client, confirm_required=True)["id"]
    leave_room_for_members(stack, full_id, room=1)
    with stack.client() as stranger:
        assert data(stranger.post(f"/subscriptions/{list_id}", json={"email": new_address()})) == 1
    assert read_quotas(client)["members"]["used"] == MAX_MEMBERS - 1
    data(client.delete(f"/lists/{full_id}"))
    assert read_quotas(client)["members"]["used"] == 0


def test_reader_can_join_beyond_the_member_quota_and_the_owner_is_mailed_once_a_day(
    stack: Stack, owner: Owner, client: httpx2.Client
) -> None:
    list_id = new_list(client)["id"]
    leave_room_for_members(stack, list_id, room=1)
    join_and_fold_counts(stack, list_id)
    assert list_quota_mails(stack, owner) == []
    join_and_fold_counts(stack, list_id)
    assert read_quotas(client)["members"] == {"used": MAX_MEMBERS + 1, "limit": MAX_MEMBERS}
    [mail] = await_mails(stack, owner.email)
    assert mail["subject"] == "Your lists have more members than your plan allows"
    join_and_fold_counts(stack, list_id)
    assert len(list_quota_mails(stack, owner)) == 1
    # After a day, the owner is notified again.
    stack.query(
        "UPDATE account_mails SET created_at = now() - interval '25 hours' WHERE user_id = %s",
        owner.user_id,
    )
    join_and_fold_counts(stack, list_id)
    assert len(list_quota_mails(stack, owner)) == 2
    require_exceeded(
        add(client, list_id, new_address()), "members", used=MAX_MEMBERS + 3, limit=MAX_MEMBERS
    )


def join_and_fold_counts(stack: Stack, list_id: int) -> None:
    with new_reader(stack) as reader:
        reader.joins(list_id)
        assert reader.read_status(list_id) == ("active", True)
    run_maintenance(stack, "maintenance.fold_counts")


def list_quota_mails(stack: Stack, owner: Owner) -> list[tuple[object, ...]]:
    return stack.query(
        "SELECT id FROM account_mails WHERE user_id = %s AND kind = 'members_over_quota'",
        owner.user_id,
    )
