"""Tests of the sweep for attachment objects without a row and attachment rows without an object."""

from datetime import timedelta
from typing import Any

import httpx2

from core import clock
from devstack.harness.stack import Stack
from services import removals
from services.attachments import strays
from services.attachments.strays import Stray, StrayKind
from tests.support.commands.running import run_json_command
from tests.support.images.pictures import photo


def find_strays(stack: Stack, *, hours: float = 2) -> set[Stray]:
    """Return the stray objects and rows that a sweep would find ``hours`` hours from now."""
    removals.process_due_removals(stack.resources)
    return set(strays.find_strays(stack.resources, now=clock.now() + timedelta(hours=hours)))


def upload_picture(client: httpx2.Client, **params: str) -> dict[str, Any]:
    reply = client.post("/attachments", files={"file": ("p.jpg", photo())}, params=params)
    data: dict[str, Any] = reply.json()["data"]
    return data


def upload_with_renditions(client: httpx2.Client) -> tuple[dict[str, Any], list[str]]:
    """Upload a picture, and return its record and the keys of its renditions."""
    record = upload_picture(client, renditions="1")
    folder = f"renditions/{record['hash_id']}"
    return record, [f"{folder}/{each['filename']}" for each in record["renditions"]]


def test_attachment_sweep_keeps_current_renditions_and_those_of_unfinished_attachments(
    stack: Stack, client: httpx2.Client
) -> None:
    record, keys = upload_with_renditions(client)
    assert len(keys) == 2
    assert not [stray for stray in find_strays(stack) if record["hash_id"] in stray.key]
    mark_unfinished = "UPDATE attachments SET status = 1, renditions = '[]' WHERE id = %s"
    stack.query(mark_unfinished, record["id"])
    assert not [stray for stray in find_strays(stack) if record["hash_id"] in stray.key]


def test_attachment_sweep_finds_and_removes_stored_objects_without_a_database_row(
    stack: Stack, client: httpx2.Client
) -> None:
    plain = upload_picture(client)
    record, keys = upload_with_renditions(client)
    objects = stack.resources.objects
    stray_keys = ["originals/000000000000", "media/zzzzzzzzzzzz.webp", "media/0.webp"]
    # Store three renditions that no row mentions: one for an attachment that doesn't exist, one for
    # an attachment without renditions, and one for an attachment with other renditions.
    stray_keys += ["renditions/000000000000/000000000000-320.webp"]
    stray_keys += [
        f"renditions/{each['hash_id']}/{each['hash_id']}-1.webp" for each in (plain, record)
    ]
    for key in stray_keys:
        objects.put(key, b"left behind", "image/webp")
    expected = {Stray(StrayKind.OBJECT_WITHOUT_ROW, key) for key in stray_keys}
    current_strays = find_strays(stack)
    assert expected <= current_strays
    assert not {stray.key for stray in current_strays} & set(keys)
    for stray in expected:
        strays.repair_stray(stack.resources, stray)
    assert not expected & find_strays(stack)
    assert [key for key in [*stray_keys, *keys] if objects.exists(key)] == keys


def test_attachment_repair_drops_rendition_with_missing_object_and_keeps_the_rest(
    stack: Stack, client: httpx2.Client
) -> None:
    record, keys = upload_with_renditions(client)
    stack.resources.objects.remove(keys[0])
    stray = Stray(StrayKind.ROW_WITHOUT_OBJECT, keys[0])
    assert stray in find_strays(stack)
    strays.repair_stray(stack.resources, stray)
    attachment = client.get(f"/attachments/{record['hash_id']}").json()["data"]
    assert (attachment["status"], attachment["renditions"]) == (2, record["renditions"][1:])
    assert not [each for each in find_strays(stack) if record["hash_id"] in each.key]


def test_attachment_with_missing_object_is_marked_failed_and_loses_its_renditions(
    stack: Stack, client: httpx2.Client
) -> None:
    record, keys = upload_with_renditions(client)
    key = f"media/{record['filename']}"
    stack.resources.objects.remove(key)
    stray = Stray(StrayKind.ROW_WITHOUT_OBJECT, key)
    assert stray in find_strays(stack)
    strays.repair_stray(stack.resources, stray)
    attachment = client.get(f"/attachments/{record['hash_id']}").json()["data"]
    assert (attachment["status"], attachment["error"]["code"]) == (3, "attachment.object_missing")
    assert attachment["renditions"] == []
    current_strays = find_strays(stack)
    assert stray not in current_strays
    assert {Stray(StrayKind.OBJECT_WITHOUT_ROW, key) for key in keys} <= current_strays


def test_attachment_sweep_ignores_recent_objects_without_a_database_row(stack: Stack) -> None:
    key = "originals/111111111111"
    stack.resources.objects.put(key, b"of a request under way", "image/webp")
    assert Stray(StrayKind.OBJECT_WITHOUT_ROW, key) not in find_strays(stack, hours=0.5)
    stack.resources.objects.remove(key)


def test_attachment_sweep_keeps_original_of_upload_waiting_for_its_worker(stack: Stack) -> None:
    owner = stack.create_owner()
    stack.query(
        "INSERT INTO attachments (user_id, hash_id, status, encrypted, mime_type, filename, size,"
        " checksum, original_filename, original_mime_type, original_size, original_checksum)"
        " VALUES (%s, 'waiting', 1, false, 'image/webp', 'waiting.webp', 0, '', 'x', 'image/png',"
        " 1, '')",
        owner.user_id,
    )
    stack.resources.objects.put("originals/waiting", b"a picture", "image/webp")
    assert not [stray for stray in find_strays(stack) if "waiting" in stray.key]


def test_attachment_sweep_command_reports_nothing_without_old_strays(stack: Stack) -> None:
    # The command `attachments sweep` ignores objects that are younger than an hour. All objects in
    # the tests are younger than an hour, because a test can't change the age of an object.
    assert run_json_command(stack, "attachments", "sweep", "--fix") == []
