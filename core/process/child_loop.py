"""The loop of a child process that answers one message of its parent after another.

A module is such a child if it calls `serve`. `child_process.ChildProcess` starts it as
`python -m <module> <parent's pid> <memory in bytes>`. It exits with status 0 only between two
messages, so that its parent may send a message again that had no answer by then.
"""

import json
import os
import resource
import select
import struct
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO

from core.process.linux import end_with_parent, give_memory_back

# Messages in both directions are a head (two lengths), a JSON text, and bytes.
HEAD = struct.Struct(">IQ")

# Takes the JSON fields and the bytes of a request; returns the fields and the bytes of the answer.
Answer = Callable[[Any, bytes], tuple[Any, Sequence[bytes]]]

_MAX_CPU_SECONDS = 60.0
_IDLE_SECONDS = 1.0


def pack(fields: Any, data: Sequence[bytes] = ()) -> Sequence[bytes]:
    """Return the parts of a message in order. The data is not copied."""
    text = json.dumps(fields).encode()
    return HEAD.pack(len(text), sum(map(len, data))) + text, *data


def serve(answer: Answer, *, confine: Callable[[int], None], max_resident_bytes: int) -> None:
    """Answer messages until the parent closes the pipe or this process has worked enough.

    Args:
        confine: gives up rights before the first message, given the memory in bytes.
        max_resident_bytes: the process ends after a message that leaves more memory in use.
    """
    parent, memory_bytes = int(sys.argv[1]), int(sys.argv[2])
    end_with_parent(parent)
    # The pipes are kept to ourselves: a library that prints must not write into an answer.
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb", buffering=0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    # The worker reads our output after our end, so a full pipe must not stop us.
    os.set_blocking(2, False)
    sizes = os.open("/proc/self/statm", os.O_RDONLY)
    confine(memory_bytes)
    while head := requests.read(HEAD.size):
        _answer_one(answer, head, requests, answers)
        if time.process_time() > _MAX_CPU_SECONDS:
            return
        if _resident_bytes(sizes) > max_resident_bytes:
            give_memory_back()
            if _resident_bytes(sizes) > max_resident_bytes:
                return
        # Memory that is kept makes the next message faster. An idle process gives it back.
        if not select.select([requests], [], [], _IDLE_SECONDS)[0]:
            give_memory_back()


def _answer_one(answer: Answer, head: bytes, requests: BinaryIO, answers: BinaryIO) -> None:
    """Read a message and answer it.

    This is a function of its own so that no variable holds a message after its answer.
    """
    text_length, data_length = HEAD.unpack(head)
    text, data = requests.read(text_length), requests.read(data_length)
    if len(text) + len(data) < text_length + data_length:
        # The parent is gone, so no process waits for an answer.
        sys.exit(1)
    for part in pack(*answer(json.loads(text), data)):
        rest = memoryview(part)
        while rest:
            rest = rest[answers.write(rest) :]


def _resident_bytes(sizes: int) -> int:
    return int(os.pread(sizes, 100, 0).split()[1]) * resource.getpagesize()
