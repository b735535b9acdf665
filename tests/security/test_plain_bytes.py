"""What is uploaded to be encrypted rests in plain nowhere: not in storage, on disk or in Redis."""

import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from PIL import Image

from tests.pictures import photo
from tests.stack import Stack


def files_below(directory: Path) -> Iterator[Path]:
    for parent, _, names in os.walk(directory):
        files = (Path(parent) / name for name in names)
        yield from (file for file in files if file.is_file())


def test_no_object_temp_file_or_redis_key_has_bytes_of_an_encrypted_upload(
    make_stack: Callable[[str], Stack], tmp_path: Path
) -> None:
    stack = make_stack("sealed")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    stack.start_api(TMPDIR=str(temporary))
    stack.start_worker("media", TMPDIR=str(temporary))
    original = photo(700, 500)
    with stack.client(stack.new_owner().key) as client:
        reply = client.post("/attachments?encrypted=true", files={"file": ("p.jpg", original)})
        record = reply.json()["data"]
        stored = client.get(record["view_url"]).content
    assert Image.open(io.BytesIO(stored)).size == (700, 500)
    traces = [
        plain[at : at + 24] for plain in (original, stored) for at in (0, 900, len(plain) // 2)
    ]

    objects = [stack.resources.objects.get(item.key) for item in stack.resources.objects.stored()]
    redis = stack.resources.redis
    values = [value for key in redis.scan_iter() if isinstance(value := redis.dump(key), bytes)]
    files = [file.read_bytes() for file in files_below(temporary)]
    assert objects
    for resting in (*objects, *values, *files):
        assert not any(trace in resting for trace in traces)
    # The bucket's volumes in the store itself, where a deleted object's bytes stay for a while.
    volumes = [file for file in files_below(stack.home / "s3") if file.name.startswith("sealed_")]
    assert volumes
    for file in volumes:
        content = file.read_bytes()
        assert not any(trace in content for trace in traces), file
