"""Runs risky work in a child process, so that a crash or an exploit can't harm the parent."""

import json
import math
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from core.process.child_loop import HEAD, pack_message
from core.process.linux import measure_cpu_seconds

# A message may take this many times as long as its CPU time limit, because a busy machine gives a
# process only a small part of a CPU core.
WAIT_SECONDS_PER_CPU_SECOND = 10.0
_MIN_POLL_SECONDS = 0.01
_EXIT_SECONDS = 1.0
_MAX_PRINTED_CHARACTERS = 4_000
_ROOT = Path(__file__).parents[2]


class ChildTooSlow(Exception):
    pass


class ChildLate(Exception):
    """Raised after the child process was killed because it didn't answer a message in time.

    The machine is busy, or the child was stopped.
    """


class ChildCrashed(Exception):
    """Raised with the child's exit status or signal if the child exits before it answers."""

    def __init__(self, cause: str, printed: str) -> None:
        super().__init__(cause)
        self.cause = cause
        # The last characters that the child process wrote to standard error.
        self.printed = printed[-_MAX_PRINTED_CHARACTERS:]


class ChildProcess:
    """A child process that runs a Python module, which must call ``child_loop.answer_messages``.

    Only one thread may use the child process at a time. The kernel kills the child process when the
    thread that started the child ends. ``ask`` starts a new child process if no child is running.

    Args:
        cpu_seconds: the limit of the child's CPU time for one message. The parent measures the CPU
            time, so that hostile code in the child can't evade the limit.
        wait_seconds: how long the parent waits for one answer, by default
            ``WAIT_SECONDS_PER_CPU_SECOND`` times as long as ``cpu_seconds``.
        memory_bytes: the limit of the child's address space, in bytes.
    """

    def __init__(
        self,
        module: str,
        *,
        cpu_seconds: float,
        memory_bytes: int,
        max_messages: int,
        wait_seconds: float | None = None,
    ) -> None:
        self._module = module
        self._cpu_seconds = cpu_seconds
        self._wait_seconds = wait_seconds or cpu_seconds * WAIT_SECONDS_PER_CPU_SECOND
        self._memory_bytes = memory_bytes
        self._max_messages = max_messages
        self._child: subprocess.Popen[bytes] | None = None
        self._owner = os.getpid()
        self._messages = 0

    @property
    def pid(self) -> int | None:
        return self._child.pid if self._child else None

    def start(self) -> None:
        """Start the child process, so that the first message doesn't wait for its startup."""
        self._usable()

    def ask(
        self, fields: Any, *data: bytes, wait_seconds: float | None = None
    ) -> tuple[Any, bytes]:
        """Return the JSON fields and binary data of the child's answer.

        Raises ``ChildTooSlow``, ``ChildLate`` or ``ChildCrashed``. ``wait_seconds`` is a shorter
        time limit, for example because the caller who waits for the answer leaves earlier.
        """
        message = pack_message(fields, data)
        deadline = time.monotonic() + min(wait_seconds or math.inf, self._wait_seconds)
        answer = self._ask(message, deadline) or self._ask(message, deadline)
        if answer is None:
            raise ChildCrashed("exit status 0", "")
        return answer

    def close(self) -> None:
        """Stop the child process, which must be idle."""
        if self._child is not None and self._owner == os.getpid():
            self._end(self._child)
        self._child = None

    def _ask(self, message: Sequence[bytes], deadline: float) -> tuple[Any, bytes] | None:
        """Return the child's answer, or ``None`` if the child exited before it read the message."""
        child = self._usable()
        limits = _Limits(child.pid, deadline, measure_cpu_seconds(child.pid) + self._cpu_seconds)
        self._messages += 1
        try:
            requests = _descriptor(child.stdin)
            answers = _descriptor(child.stdout)
            for part in message:
                _send(requests, part, limits)
            text_length, data_length = HEAD.unpack(_receive(answers, HEAD.size, limits))
            text = _receive(answers, text_length, limits)
            data = _receive(answers, data_length, limits)
            return json.loads(text), data
        except BrokenPipeError:
            status, printed = self._kill(child, grace=_EXIT_SECONDS)
        except BaseException:
            # The message exceeded a limit, or the job's time limit interrupted the call at any
            # point. Kill the child, because the next call would read the rest of this answer.
            self._kill(child)
            raise
        if status == 0:
            return None
        cause = f"exit status {status}" if status > 0 else f"signal {signal.Signals(-status).name}"
        raise ChildCrashed(cause, printed)

    def _usable(self) -> subprocess.Popen[bytes]:
        if self._owner != os.getpid():
            # After a fork, start a new child process, because the existing one belongs to the
            # parent process.
            self._child = None
            self._owner = os.getpid()
        child = self._child
        if child is not None and (child.poll() is not None or self._messages >= self._max_messages):
            self._end(child)
            child = None
        if child is not None:
            return child
        # The child's working directory is the project's root, so that the child can import
        # Pressroom's packages. The child has a separate process group, so that Ctrl-C in a terminal
        # doesn't interrupt the child. The child's error output goes into a pipe, so that a hostile
        # child can't forge lines in the worker's log.
        arguments = (str(os.getpid()), str(self._memory_bytes))
        child = subprocess.Popen(  # noqa: S603 - our own module, numbers for arguments
            [sys.executable, "-m", self._module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            cwd=_ROOT,
            env={},
            process_group=0,
        )
        for pipe in (child.stdin, child.stdout, child.stderr):
            os.set_blocking(_descriptor(pipe), False)
        self._child = child
        self._messages = 0
        return child

    def _end(self, child: subprocess.Popen[bytes]) -> None:
        if child.stdin:
            child.stdin.close()
        self._kill(child, grace=_EXIT_SECONDS)

    def _kill(self, child: subprocess.Popen[bytes], *, grace: float = 0.0) -> tuple[int, str]:
        """Stop the child process, and return its exit status and its error output.

        The child has ``grace`` seconds to exit before it is killed.
        """
        with suppress(subprocess.TimeoutExpired):
            child.wait(grace)
        child.kill()
        status = child.wait()
        printed = child.stderr.read() if child.stderr else None
        for pipe in (child.stdin, child.stdout, child.stderr):
            if pipe:
                pipe.close()
        self._child = None
        return status, (printed or b"").decode(errors="replace")


@dataclass(frozen=True)
class _Limits:
    """The limits of one message: a monotonic time, and a value of the child's CPU clock."""

    pid: int
    deadline: float
    max_cpu_seconds: float

    def check(self) -> float:
        """Return the time in seconds before which the child can't exceed its limits.

        The CPU time is checked first, because a child that exceeds both limits has worked on the
        message for too long.
        """
        cpu_seconds = self.max_cpu_seconds - measure_cpu_seconds(self.pid)
        if cpu_seconds <= 0:
            raise ChildTooSlow
        seconds = self.deadline - time.monotonic()
        if seconds <= 0:
            raise ChildLate
        return max(min(seconds, cpu_seconds), _MIN_POLL_SECONDS)


def _descriptor(pipe: IO[bytes] | None) -> int:
    if pipe is None or pipe.closed:
        raise BrokenPipeError
    return pipe.fileno()


def _send(descriptor: int, data: bytes, limits: _Limits) -> None:
    rest = memoryview(data)
    while rest:
        _await(descriptor, select.POLLOUT, limits)
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:
            continue


def _receive(descriptor: int, length: int, limits: _Limits) -> bytes:
    received = bytearray(length)
    rest = memoryview(received)
    while rest:
        _await(descriptor, select.POLLIN, limits)
        count = os.readv(descriptor, [rest])
        if not count:
            raise BrokenPipeError
        rest = rest[count:]
    return bytes(received)


def _await(descriptor: int, event: int, limits: _Limits) -> None:
    poll = select.poll()
    poll.register(descriptor, event)
    while not poll.poll(limits.check() * 1000):
        continue
