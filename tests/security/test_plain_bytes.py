"""Tests that encrypted uploads leave no plain bytes in the object storage, on disk or in Redis."""

import io
import os
import secrets
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import httpx2
import pytest
from PIL import Image

from core.scopes import Scope
from devstack.harness.stack import Stack
from tests.support.http.replies import data
from tests.support.images.pictures import photo
from tests.support.imports.bulk import (
    add,
    build_address_file,
    build_addresses,
    export,
    fetch_rejected_rows,
    import_members_file,
)
from tests.support.lists.subscribers import new_list


def files_below(directory: Path) -> Iterator[Path]:
    for parent, _, names in os.walk(directory):
        files = (Path(parent) / name for name in names)
        yield from (file for file in files if file.is_file())


@pytest.mark.tier("processes")
def test_encrypted_upload_leaves_no_plain_bytes_in_storage_temp_files_or_redis(
    make_stack: Callable[[str], Stack], tmp_path: Path
) -> None:
    stack = make_stack("sealed")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    stack.start_api(TMPDIR=str(temporary))
    stack.start_worker("media", TMPDIR=str(temporary))
    original = photo(700, 500)
    with stack.client(stack.create_owner().key) as client:
        reply = client.post("/attachments?encrypted=true", files={"file": ("p.jpg", original)})
        record = reply.json()["data"]
        stored = client.get(record["view_url"]).content
    assert Image.open(io.BytesIO(stored)).size == (700, 500)
    traces = [
        plain[start : start + 24]
        for plain in (original, stored)
        for start in (0, 900, len(plain) // 2)
    ]

    _require_no_traces(stack, traces, temporary)


@pytest.mark.tier("processes")
def test_import_and_export_leave_no_plain_bytes_in_storage_or_temp_files(
    make_stack: Callable[[str], Stack], tmp_path: Path
) -> None:
    stack = make_stack("sealedlists")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    stack.start_api(TMPDIR=str(temporary))
    stack.start_worker("bulk", "export", concurrency=1, TMPDIR=str(temporary))
    owner = stack.create_owner()
    sender = stack.create_key(owner.user_id, Scope.DELIVERY)
    people = build_addresses(50)
    rejected = f"not an address {secrets.token_hex(8)}"
    file = build_address_file(*people, rejected)
    with stack.client(owner.key) as client, stack.client(sender) as sending:
        list_id = new_list(client)["id"]
        result = import_members_file(client, list_id, file)
        added = build_addresses(50)
        assert data(add(client, list_id, *added)) == len(added)
        sheets = [
            httpx2.get(data(export(asking, list_id, kind))["result"]["url"]).content
            for asking, kind in ((client, "members"), (sending, "delivery"))
        ]
        assert [each["Email"] for each in fetch_rejected_rows(result["errors_url"])] == [rejected]
    traces = [each[start : start + 24] for each in sheets for start in (20, len(each) // 2)]
    traces += [each.encode() for each in (*people, *added, rejected)]
    _require_no_traces(stack, traces, temporary)
    # Decompressing the stored rejected rows fails, because the database contains these rows only in
    # encrypted form.
    [(rejected_rows,)] = stack.query(
        "SELECT not_added FROM import_chunks WHERE import_id = %s", result["import_id"]
    )
    with pytest.raises(zlib.error):
        zlib.decompress(bytes(cast("memoryview", rejected_rows)))


def _require_no_traces(stack: Stack, traces: list[bytes], temporary: Path) -> None:
    """Require that no object, Redis value, temporary file or storage volume contains plain data.

    ``traces``: byte sequences from the unencrypted data, which the function searches for.
    """
    objects = [
        stack.resources.objects.get(item.key) for item in stack.resources.objects.list_objects()
    ]
    redis = stack.resources.redis
    values = [value for key in redis.scan_iter() if isinstance(value := redis.dump(key), bytes)]
    files = [file.read_bytes() for file in files_below(temporary)]
    assert objects
    for content in (*objects, *values, *files):
        assert not any(trace in content for trace in traces)
    # Read the files of the object storage, too, because these files contain deleted objects for a
    # while.
    collection = f"{stack.settings().s3_bucket}_"
    storage_files = files_below(stack.home / "s3")
    volumes = [file for file in storage_files if file.name.startswith(collection)]
    assert volumes
    for file in volumes:
        content = file.read_bytes()
        assert not any(trace in content for trace in traces), file
