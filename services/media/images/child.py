"""The converter process: `python -m services.media.images.child <parent's pid> <memory in bytes>`.

It reads a whole image, answers, and reads the next one. It exits with status 0 only between two
images, so that its parent may send an image again that had no answer by then.
"""

import ctypes
import os
import resource
import select
import signal
import sys
from pathlib import Path
from typing import BinaryIO

from services.media.images.child_messages import REQUEST, answer_head
from services.media.images.conversion import convert
from services.media.images.outcome import ConvertedImage, UnreadableImage

_PR_SET_PDEATHSIG = 1
_MAX_RESIDENT_BYTES = 192 * 1024 * 1024
_IDLE_SECONDS = 1.0


def main() -> None:
    parent, memory_bytes = int(sys.argv[1]), int(sys.argv[2])
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        # The parent died before this process asked for the signal.
        sys.exit(1)
    # The pipes are kept to ourselves: a library that prints must not write into an answer.
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb", buffering=0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    while head := requests.read(REQUEST.size):
        (length,) = REQUEST.unpack(head)
        _answer(requests, length, answers)
        if _resident() > _MAX_RESIDENT_BYTES:
            libc.malloc_trim(0)
            if _resident() > _MAX_RESIDENT_BYTES:
                return
        # Memory that is kept makes the next image faster; an idle process gives it back.
        if not select.select([requests], [], [], _IDLE_SECONDS)[0]:
            libc.malloc_trim(0)


def _answer(requests: BinaryIO, length: int, answers: BinaryIO) -> None:
    """A function of its own: between two images nothing holds the bytes of the last one."""
    body = requests.read(length)
    if len(body) < length:
        # The parent is gone, so no process waits for an answer.
        sys.exit(1)
    outcome: ConvertedImage | UnreadableImage
    try:
        outcome = convert(body)
    except UnreadableImage as refusal:
        outcome = refusal
    for part in answer_head(outcome):
        rest = memoryview(part)
        while rest:
            rest = rest[answers.write(rest) :]


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


if __name__ == "__main__":
    main()
