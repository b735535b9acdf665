"""The converter: `python -m services.media.isolation.child <parent's pid> <memory in bytes>`.

It reads a whole image, answers, and reads the next one. It exits with status 0 only between two
images, so that its parent may send an image again that had no answer by then.
"""

import os
import resource
import select
import sys
import time
from importlib import import_module
from typing import BinaryIO

from core.process.linux import end_with_parent, give_memory_back
from services.media.images.conversion import convert
from services.media.images.outcome import ConvertedImage, UnreadableImage
from services.media.isolation.child_messages import REQUEST, answer_parts
from services.media.isolation.confinement import confine

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
    except UnreadableImage as refusal:
        outcome = refusal
    for part in answer_parts(outcome):
        rest = memoryview(part)
        while rest:
            rest = rest[answers.write(rest) :]


def _resident(sizes: int) -> int:
    return int(os.pread(sizes, 100, 0).split()[1]) * resource.getpagesize()


if __name__ == "__main__":
    main()
