"""The main loop of a child process, which answers messages from its parent one by one.

`child_process.ChildProcess` starts a module as `python -m <module> <parent's pid> <memory in
bytes>`. A child process exits with status 0 only between two messages, so that the parent can send
an unanswered message again.
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

from core.process.linux import exit_with_parent, trim_memory

# The header of each message contains the length of its JSON text and the length of its binary data.
HEAD = struct.Struct(">IQ")

# The type of functions that reply to a message from the parent process. Messages and answers
# consist of JSON fields and binary data.
Answer = Callable[[Any, bytes], tuple[Any, Sequence[bytes]]]

# By default, a child process exits after this much CPU time, and the parent starts a new one.
_MAX_CPU_SECONDS = 60.0
_IDLE_SECONDS = 2.0


def pack_message(fields: Any, data: Sequence[bytes] = ()) -> Sequence[bytes]:
    """Encode a message as several parts, without copying the binary data."""
    text = json.dumps(fields).encode()
    return HEAD.pack(len(text), sum(map(len, data))) + text, *data


def answer_messages(
    answer: Answer,
    *,
    confine: Callable[[int], None],
    max_resident_bytes: int,
    max_cpu_seconds: float | None = None,
) -> None:
    """Answer the parent's messages until the parent closes the pipe.

    Args:
        confine: a function that restricts the child process before the process reads its first
            message. ``confine`` gets the memory limit in bytes.
        max_resident_bytes: the resident memory above which the process exits after an answer.
        max_cpu_seconds: the CPU time above which the process exits after an answer.
    """
    parent = int(sys.argv[1])
    memory_bytes = int(sys.argv[2])
    exit_with_parent(parent)
    # Move the pipes to private file descriptors, so that output printed by a library can't corrupt
    # an answer.
    requests = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    empty_input = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty_input, 0)
    os.dup2(2, 1)
    os.close(empty_input)
    # Drop output if the stderr pipe is full, because the parent reads stderr only after the child
    # process exits.
    os.set_blocking(2, False)
    sizes = os.open("/proc/self/statm", os.O_RDONLY)
    confine(memory_bytes)
    while head := requests.read(HEAD.size):
        _answer_one(answer, head, requests, answers)
        if time.process_time() > (max_cpu_seconds or _MAX_CPU_SECONDS):
            return
        if _resident_bytes(sizes) > max_resident_bytes:
            trim_memory()
            if _resident_bytes(sizes) > max_resident_bytes:
                return
        # Return unused memory to the operating system only when the process is idle.
        if not select.select([requests], [], [], _IDLE_SECONDS)[0]:
            trim_memory()


def _answer_one(answer: Answer, head: bytes, requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer in a function of its own, so that Python frees the message's memory afterwards."""
    text_length, data_length = HEAD.unpack(head)
    text = requests.read(text_length)
    data = requests.read(data_length)
    if len(text) + len(data) < text_length + data_length:
        # The parent exited while sending the message, so no process is waiting for an answer.
        sys.exit(1)
    for part in pack_message(*answer(json.loads(text), data)):
        rest = memoryview(part)
        while rest:
            rest = rest[answers.write(rest) :]


def _resident_bytes(sizes: int) -> int:
    return int(os.pread(sizes, 100, 0).split()[1]) * resource.getpagesize()
