import json
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta

import pytest
from minio import Minio

from core.ids import random_hash_id
from devstack.harness.embedded_services import Services
from devstack.harness.polling import eventually
from devstack.harness.stack import Stack
from services import removals
from storage.resources import Resources


@pytest.fixture
def removal_resources(empty_stack: Stack) -> Iterator[Resources]:
    yield empty_stack.resources
    empty_stack.query("TRUNCATE object_removals")


def put_objects(
    removal_resources: Resources, *, count: int = 1, prefix: str = "media/"
) -> list[str]:
    keys = [f"{prefix}{random_hash_id()}" for _ in range(count)]
    for key in keys:
        removal_resources.objects.put(key, b"bytes", "image/webp")
    return keys


def schedule_removal(
    removal_resources: Resources, *keys: str, after: timedelta = timedelta(0)
) -> None:
    with removal_resources.unit_of_work() as uow:
        removals.forget_objects(uow, *keys, after=after)


def count_removals(empty_stack: Stack) -> int:
    [(count,)] = empty_stack.query("SELECT count(*) FROM object_removals")
    return int(str(count))


def make_due(empty_stack: Stack) -> None:
    empty_stack.query("UPDATE object_removals SET try_at = now()")


def test_objects_and_folders_scheduled_for_removal_are_deleted_with_their_queue_rows(
    empty_stack: Stack, removal_resources: Resources
) -> None:
    folder = f"imports/{random_hash_id()}/"
    kept_keys = put_objects(removal_resources)
    removed_keys = [
        *put_objects(removal_resources, count=150),
        *put_objects(removal_resources, count=3, prefix=folder),
    ]
    schedule_removal(removal_resources, *removed_keys[:150], folder, "media/was-never-there")
    assert removals.process_due_removals(removal_resources) == 152
    stored_keys = {each.key for each in removal_resources.objects.list_objects()}
    assert not stored_keys & set(removed_keys)
    assert stored_keys >= set(kept_keys)
    assert count_removals(empty_stack) == 0


def test_object_scheduled_for_removal_in_a_rolled_back_transaction_is_kept(
    empty_stack: Stack, removal_resources: Resources
) -> None:
    [key] = put_objects(removal_resources)
    with removal_resources.unit_of_work() as uow:
        removals.forget_objects(uow, key)
        uow.session.flush()
        uow.session.rollback()
    assert removals.process_due_removals(removal_resources) == 0
    assert removal_resources.objects.exists(key)


def test_object_removal_waits_for_its_time_and_is_cancelled_when_the_object_is_kept(
    empty_stack: Stack, removal_resources: Resources
) -> None:
    [key] = put_objects(removal_resources)
    schedule_removal(removal_resources, key, after=timedelta(days=7))
    assert removals.process_due_removals(removal_resources) == 0
    with removal_resources.unit_of_work() as uow:
        assert removals.keep_object(uow, key)
    make_due(empty_stack)
    assert removals.process_due_removals(removal_resources) == 0
    assert removal_resources.objects.exists(key)


def test_object_whose_removal_has_begun_cannot_be_kept(
    empty_stack: Stack, removal_resources: Resources
) -> None:
    [key] = put_objects(removal_resources)
    schedule_removal(removal_resources, key)
    # A worker was killed while it deleted the object.
    empty_stack.query("UPDATE object_removals SET tries = 1, try_at = now() + interval '30 s'")
    schedule_removal(removal_resources, key, after=timedelta(hours=1))
    with removal_resources.unit_of_work() as uow:
        assert not removals.keep_object(uow, key)
    make_due(empty_stack)
    assert removals.process_due_removals(removal_resources) == 1
    assert not removal_resources.objects.exists(key)


def test_undeletable_object_does_not_block_the_removal_of_others(
    empty_stack: Stack, removal_resources: Resources, services: Services
) -> None:
    folder = f"imports/{random_hash_id()}/"
    locked_folder = f"locked/{random_hash_id()}/"
    locked_keys = [
        *put_objects(removal_resources, count=2, prefix="locked/"),
        *put_objects(removal_resources, prefix=locked_folder),
    ]
    removed_keys = [
        *put_objects(removal_resources, count=120),
        *put_objects(removal_resources, count=2, prefix=folder),
    ]
    schedule_removal(
        removal_resources,
        locked_keys[0],
        *removed_keys[:60],
        folder,
        locked_folder,
        *removed_keys[60:120],
        locked_keys[1],
    )
    with locked_objects(empty_stack, services):
        assert removals.process_due_removals(removal_resources) == 121
        stored_keys = {each.key for each in removal_resources.objects.list_objects()}
        assert stored_keys >= set(locked_keys)
        assert not stored_keys & set(removed_keys)
        rows = empty_stack.query("SELECT key, try_at > now(), last_reason FROM object_removals")
        assert {key for key, *_ in rows} == {*locked_keys[:2], locked_folder}
        for _, is_delayed, reason in rows:
            assert is_delayed
            assert "AccessDenied" in str(reason)
    make_due(empty_stack)
    assert removals.process_due_removals(removal_resources) == 3
    assert count_removals(empty_stack) == 0


@contextmanager
def locked_objects(empty_stack: Stack, services: Services) -> Iterator[None]:
    """Make a bucket policy deny the deletion of objects below ``locked/`` until the block ends."""
    settings = empty_stack.settings()
    secrets = services.secrets
    client = Minio(
        f"{settings.s3_endpoint.host}:{settings.s3_endpoint.port}",
        access_key=secrets.s3_admin_access_key,
        secret_key=secrets.s3_admin_secret_key,
        secure=False,
        region="us-east-1",
    )
    rule = {
        "Effect": "Deny",
        "Principal": "*",
        "Action": "s3:DeleteObject",
        "Resource": f"arn:aws:s3:::{settings.s3_bucket}/locked/*",
    }
    policy = json.dumps({"Version": "2012-10-17", "Statement": [rule]})
    client.set_bucket_policy(settings.s3_bucket, policy)
    try:
        yield
    finally:
        client.delete_bucket_policy(settings.s3_bucket)


def test_object_removal_is_only_delayed_while_the_storage_is_down(
    empty_stack: Stack, removal_resources: Resources, services: Services
) -> None:
    keys = put_objects(removal_resources, count=3)
    schedule_removal(removal_resources, *keys)
    services.group["s3"].send_signal(signal.SIGKILL)
    try:
        assert removals.process_due_removals(removal_resources) == 0
        [(tries, is_due_soon, reason)] = empty_stack.query(
            "SELECT DISTINCT tries, try_at <= now() + interval '30 s', last_reason"
            " FROM object_removals"
        )
        assert (tries, is_due_soon) == (1, True)
        assert str(reason).startswith("The object storage is not responding")
    finally:
        services.restart("s3")

    def are_all_removed() -> bool:
        make_due(empty_stack)
        removals.process_due_removals(removal_resources)
        return count_removals(empty_stack) == 0

    # The circuit breaker of the storage may stay open for a moment.
    eventually(are_all_removed, what="the removal of all objects")
    assert not [key for key in keys if removal_resources.objects.exists(key)]


def test_concurrent_workers_remove_each_due_object_exactly_once(
    empty_stack: Stack, removal_resources: Resources
) -> None:
    keys = put_objects(removal_resources, count=250)
    schedule_removal(removal_resources, *keys)
    with ThreadPoolExecutor(3) as threads:
        removal_counts = list(
            threads.map(lambda _: removals.process_due_removals(removal_resources), range(3))
        )
    assert sum(removal_counts) == 250
    assert count_removals(empty_stack) == 0
    assert not [
        each.key for each in removal_resources.objects.list_objects("media/") if each.key in keys
    ]
