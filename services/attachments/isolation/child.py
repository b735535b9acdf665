"""The converter: `python -m services.attachments.isolation.child <parent's pid> <memory in bytes>`.

It reads a whole image, answers, and reads the next one. It exits with status 0 only between two
images, so that its parent may send an image again that had no answer by then.
"""

import json
import os
import resource
import select
import struct
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from importlib import import_module
from typing import BinaryIO

from core.process.linux import end_with_parent, give_memory_back
from services.attachments.images.conversion import convert
from services.attachments.images.outcome import (
    ConvertedImage,
    Rendition,
    RenditionName,
    UnreadableImage,
)
from services.attachments.isolation.confinement import confine

# A request is a length, whether renditions are wanted, and the image. An answer is a head (two
# lengths), a JSON object, and the files one after the other: the converted image and its
# renditions.

REQUEST = struct.Struct(">Q?")
ANSWER = struct.Struct(">IQ")


def answer_parts(outcome: ConvertedImage | UnreadableImage) -> Sequence[bytes]:
    """Return what makes up the answer, in order; the files' bytes are not copied."""
    fields = asdict(outcome)
    with_data = [each for each in (fields, *fields.get("renditions", ())) if "data" in each]
    files: list[bytes] = [each.pop("data") for each in with_data]
    sizes = [len(file) for file in files]
    text = json.dumps({"fields": fields, "sizes": sizes}).encode()
    return ANSWER.pack(len(text), sum(sizes)) + text, *files


def outcome(text: bytes, data: bytes) -> ConvertedImage | UnreadableImage:
    """Return what the child answered; raises ValueError for renditions that we make none of."""
    answer = json.loads(text)
    fields = answer["fields"]
    if "code" in fields:
        return UnreadableImage(**fields)
    files, rest = list[bytes](), memoryview(data)
    for size in answer["sizes"]:
        files.append(bytes(rest[:size]))
        rest = rest[size:]
    renditions = tuple(
        Rendition(
            RenditionName(each["name"]),
            file,
            str(each["mime_type"]),
            int(each["width"]),
            int(each["height"]),
        )
        for each, file in zip(fields.pop("renditions"), files[1:], strict=True)
    )
    if len({each.name for each in renditions}) < len(renditions):
        raise ValueError("two renditions have the same name")
    return ConvertedImage(data=files[0], renditions=renditions, **fields)


# Pillow imports these when an image first needs them, which is too late in a confined process. For
# a format that is missing it imports all of its sixty plugins.
_PLUGINS = ("Bmp", "Gif", "Ico", "Jpeg", "Mpo", "Png", "Ppm", "Tiff", "WebP")
for _plugin in _PLUGINS:
    import_module(f"PIL.{_plugin}ImagePlugin")

_MAX_RESIDENT_BYTES = 192 * 1024 * 1024
_MAX_CPU_SECONDS = 60.0
_IDLE_SECONDS = 1.0


def main() -> None:
    parent, memory_bytes = int(sys.argv[1]), int(sys.argv[2])
    end_with_parent(parent)
    # The pipes are kept to ourselves: a library that prints must not write into an answer.
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb", buffering=0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    # The worker reads what we print when we have ended, so a full pipe must not stop us.
    os.set_blocking(2, False)
    sizes = os.open("/proc/self/statm", os.O_RDONLY)
    confine(memory_bytes)
    while head := requests.read(REQUEST.size):
        length, with_renditions = REQUEST.unpack(head)
        _answer(requests, length, answers, with_renditions=with_renditions)
        if time.process_time() > _MAX_CPU_SECONDS:
            return
        if _resident(sizes) > _MAX_RESIDENT_BYTES:
            give_memory_back()
            if _resident(sizes) > _MAX_RESIDENT_BYTES:
                return
        # Memory that is kept makes the next image faster; an idle process gives it back.
        if not select.select([requests], [], [], _IDLE_SECONDS)[0]:
            give_memory_back()


def _answer(requests: BinaryIO, length: int, answers: BinaryIO, *, with_renditions: bool) -> None:
    """A function of its own: between two images nothing holds the bytes of the last one."""
    body = requests.read(length)
    if len(body) < length:
        # The parent is gone, so no process waits for an answer.
        sys.exit(1)
    outcome: ConvertedImage | UnreadableImage
    try:
        outcome = convert(body, with_renditions=with_renditions)
    except UnreadableImage as error:
        outcome = error
    for part in answer_parts(outcome):
        rest = memoryview(part)
        while rest:
            rest = rest[answers.write(rest) :]


def _resident(sizes: int) -> int:
    return int(os.pread(sizes, 100, 0).split()[1]) * resource.getpagesize()


if __name__ == "__main__":
    main()
