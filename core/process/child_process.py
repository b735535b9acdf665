"""Runs risky work in a child process, so that a crash or an exploit can't harm the parent."""

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

from core.process.child_loop import HEAD, pack_message

_EXIT_SECONDS = 1.0
_MAX_PRINTED_CHARACTERS = 4_000
_ROOT = Path(__file__).parents[2]


class ChildTooSlow(Exception):
    """Raised after the child process was killed because it took too long to answer a message."""


class ChildCrashed(Exception):
    """Raised if the child process exits before it answers a message.

    ``cause`` is the child's exit status or signal.
    """

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
        max_messages: the maximum number of messages per child process.
        timeout: the time limit for one message, in seconds.
        memory_bytes: the limit of the child's address space, in bytes.
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
        """Start the child process, so that the first message doesn't wait for its startup."""
        self._usable()

    def ask(self, fields: Any, *data: bytes) -> tuple[Any, bytes]:
        """Send a message to the child, and return the JSON fields and binary data of the answer.

        Raises ``ChildTooSlow`` if the child exceeds the time limit for a message. Raises
        ``ChildCrashed`` if the child process exits without an answer.
        """
        message = pack_message(fields, data)
        answer = self._ask(message) or self._ask(message)
        if answer is None:
            raise ChildCrashed("exit status 0", "")
        return answer

    def close(self) -> None:
        """Stop the child process, which must be idle."""
        if self._child is not None and self._owner == os.getpid():
            self._end(self._child)
        self._child = None

    def _ask(self, message: Sequence[bytes]) -> tuple[Any, bytes] | None:
        """Return the child's answer, or ``None`` if the child exited before it read the message."""
        child = self._usable()
        deadline = time.monotonic() + self._timeout
        self._messages += 1
        try:
            requests = _descriptor(child.stdin)
            answers = _descriptor(child.stdout)
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
            # A job's time limit may interrupt the call to the child at any point. Kill the child,
            # because the next call would read the rest of the interrupted answer.
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
