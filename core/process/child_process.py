"""Child processes for risky work, so that the work can harm nothing else."""

import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from core.process.child_loop import HEAD, pack

_PIPE_BYTES = 1024 * 1024
_EXIT_SECONDS = 1.0
_MAX_PRINTED_CHARACTERS = 4_000
_ROOT = Path(__file__).parents[2]


class ChildTooSlow(Exception):
    """The child did not answer in time, and was killed."""


class ChildCrashed(Exception):
    """The child ended in the middle of a message; ``cause`` names its status or the signal."""

    def __init__(self, cause: str, printed: str) -> None:
        super().__init__(cause)
        self.cause = cause
        # The end of its output.
        self.printed = printed[-_MAX_PRINTED_CHARACTERS:]


class ChildProcess:
    """A child process whose module calls ``child_loop.serve``.

    Only one thread may use the child at a time. The child dies with the thread that started it. The
    next message then starts a new one.

    Args:
        max_messages: the child is replaced after this number of messages.
        timeout: the seconds that a message may take.
        memory_bytes: the address space of the child.
    """

    def __init__(
        self, module: str, *, timeout: float, memory_bytes: int, max_messages: int
    ) -> None:
        self._module = module
        self._timeout = timeout
        self._memory_bytes = memory_bytes
        self._max_messages = max_messages
        self._child: subprocess.Popen[bytes] | None = None
        self._owner = os.getpid()
        self._messages = 0

    @property
    def pid(self) -> int | None:
        return self._child.pid if self._child else None

    def start(self) -> None:
        """Start the child now, so that the first message doesn't wait for it."""
        self._usable()

    def ask(self, fields: Any, *data: bytes) -> tuple[Any, bytes]:
        """Return the fields and the bytes of the child's answer to this message.

        Raises ``ChildTooSlow`` and ``ChildCrashed``.
        """
        message = pack(fields, data)
        answer = self._ask(message) or self._ask(message)
        if answer is None:
            raise ChildCrashed("exit status 0", "")
        return answer

    def close(self) -> None:
        """Stop the child. Call this only while the child is idle."""
        if self._child is not None and self._owner == os.getpid():
            self._end(self._child)
        self._child = None

    def _ask(self, message: Sequence[bytes]) -> tuple[Any, bytes] | None:
        """Return the child's answer; None if it had exited before it got this message."""
        child = self._usable()
        deadline = time.monotonic() + self._timeout
        self._messages += 1
        try:
            requests, answers = _descriptor(child.stdin), _descriptor(child.stdout)
            for part in message:
                _send(requests, part, deadline)
            text_length, data_length = HEAD.unpack(_receive(answers, HEAD.size, deadline))
            text = _receive(answers, text_length, deadline)
            data = _receive(answers, data_length, deadline)
            return json.loads(text), data
        except ChildTooSlow:
            self._kill(child)
            raise
        except BrokenPipeError:
            status, printed = self._kill(child, grace=_EXIT_SECONDS)
        except BaseException:
            # A job's time limit may raise at any point; the rest of a half-read answer must not be
            # taken for the answer to the next message.
            self._kill(child)
            raise
        if status == 0:
            return None
        cause = f"exit status {status}" if status > 0 else f"signal {signal.Signals(-status).name}"
        raise ChildCrashed(cause, printed)

    def _usable(self) -> subprocess.Popen[bytes]:
        if self._owner != os.getpid():
            # After a fork the child belongs to the parent: leave it alone and start our own.
            self._child, self._owner = None, os.getpid()
        child = self._child
        if child is not None and (child.poll() is not None or self._messages >= self._max_messages):
            self._end(child)
            child = None
        if child is not None:
            return child
        # The root as working directory puts our packages first on the child's path, wherever the
        # worker runs. With a process group of its own, a terminal's Ctrl-C doesn't reach the child:
        # the worker finishes its work. Its output goes into a pipe, because it could
        # forge lines of the worker's log.
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
        for pipe in (child.stdin, child.stdout):
            with suppress(OSError):  # refused to a user with many pipes; it only makes us faster
                fcntl.fcntl(_descriptor(pipe), fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._child, self._messages = child, 0
        return child

    def _end(self, child: subprocess.Popen[bytes]) -> None:
        if child.stdin:
            child.stdin.close()
        self._kill(child, grace=_EXIT_SECONDS)

    def _kill(self, child: subprocess.Popen[bytes], *, grace: float = 0.0) -> tuple[int, str]:
        """Kill the child unless it exits in time; returns its status and what it printed."""
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


def _descriptor(pipe: IO[bytes] | None) -> int:
    if pipe is None or pipe.closed:
        raise BrokenPipeError
    return pipe.fileno()


def _send(descriptor: int, data: bytes, deadline: float) -> None:
    rest = memoryview(data)
    while rest:
        _await(descriptor, select.POLLOUT, deadline)
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:
            continue


def _receive(descriptor: int, length: int, deadline: float) -> bytes:
    received = bytearray(length)
    rest = memoryview(received)
    while rest:
        _await(descriptor, select.POLLIN, deadline)
        count = os.readv(descriptor, [rest])
        if not count:
            raise BrokenPipeError
        rest = rest[count:]
    return bytes(received)


def _await(descriptor: int, event: int, deadline: float) -> None:
    poll = select.poll()
    poll.register(descriptor, event)
    remaining = deadline - time.monotonic()
    if remaining <= 0 or not poll.poll(remaining * 1000):
        raise ChildTooSlow
