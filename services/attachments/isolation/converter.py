import fcntl
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, Self

from core.counters.work_metrics import CONVERSION_SECONDS, KILLS, Kill
from core.errors.media import IMAGE_CRASHED, IMAGE_CRASHED_TWICE, IMAGE_TIMEOUT
from core.logging import get_logger
from services.attachments.images.outcome import ConvertedImage, UnreadableImage, refused
from services.attachments.isolation.child import ANSWER, REQUEST, outcome

# The largest legal image, two WebP frames of 49 MP, needed 2.24 GB of address space as measured.
MEMORY_BYTES = 3 * 1024 * 1024 * 1024
_IMAGES_PER_CHILD = 500
_PIPE_BYTES = 1024 * 1024
_EXIT_SECONDS = 1.0
_MAX_LOGGED_CHARACTERS = 4_000
_ROOT = Path(__file__).parents[3]
_log = get_logger(__name__)


class _Late(Exception):
    """The child did not answer in time."""


class ConverterProcess:
    """Converts in a child process, so that a hostile image can harm nothing else.

    Only one thread may use it at a time. The child dies with the thread that started it; the next
    image then starts a new one. Each image may take `timeout` seconds and `memory_bytes` of
    address space.
    """

    def __init__(self, *, timeout: float = 30.0, memory_bytes: int = MEMORY_BYTES) -> None:
        self._timeout = timeout
        self._memory_bytes = memory_bytes
        self._child: subprocess.Popen[bytes] | None = None
        self._owner = os.getpid()
        self._images = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        return self._child.pid if self._child else None

    def start(self) -> None:
        """Start the child now, so that the first image doesn't wait for it."""
        self._usable()

    def convert(self, data: bytes, *, with_renditions: bool = False) -> ConvertedImage:
        """Do as `conversion.convert` does, within the limits; raises UnreadableImage."""
        head = REQUEST.pack(len(data), with_renditions)
        with CONVERSION_SECONDS.time():
            result = self._ask(head, data) or self._ask(head, data)
        if result is None:
            raise refused(IMAGE_CRASHED_TWICE)
        if isinstance(result, UnreadableImage):
            raise result
        return result

    def close(self) -> None:
        """Stop the child. Call this only while the child is idle."""
        if self._child is not None and self._owner == os.getpid():
            self._end(self._child)
        self._child = None

    def _ask(self, head: bytes, data: bytes) -> ConvertedImage | UnreadableImage | None:
        """Return the child's answer; None if it had exited before it got this image."""
        child = self._usable()
        deadline = time.monotonic() + self._timeout
        self._images += 1
        try:
            requests, answers = _descriptor(child.stdin), _descriptor(child.stdout)
            _send(requests, head, deadline)
            _send(requests, data, deadline)
            text_length, data_length = ANSWER.unpack(_receive(answers, ANSWER.size, deadline))
            text = _receive(answers, text_length, deadline)
            return outcome(text, _receive(answers, data_length, deadline))
        except _Late:
            self._kill(child)
            KILLS.labels(Kill.TOO_SLOW).inc()
            raise refused(IMAGE_TIMEOUT, seconds=self._timeout) from None
        except BrokenPipeError:
            status, printed = self._kill(child, grace=_EXIT_SECONDS)
        except BaseException:
            # A job's time limit may raise at any point; the rest of a half-read answer must not be
            # taken for the answer to the next image.
            self._kill(child)
            raise
        if status == 0:
            return None
        KILLS.labels(Kill.CRASHED).inc()
        cause = f"exit status {status}" if status > 0 else f"signal {signal.Signals(-status).name}"
        _log.error("converter.crashed", cause=cause, printed=printed[-_MAX_LOGGED_CHARACTERS:])
        raise refused(IMAGE_CRASHED, cause=cause)

    def _usable(self) -> subprocess.Popen[bytes]:
        if self._owner != os.getpid():
            # After a fork the child belongs to the parent: leave it alone and start our own.
            self._child, self._owner = None, os.getpid()
        child = self._child
        if child is not None and (child.poll() is not None or self._images >= _IMAGES_PER_CHILD):
            self._end(child)
            child = None
        if child is not None:
            return child
        # The root as working directory puts our packages first on the child's path, wherever the
        # worker runs. With a process group of its own, a terminal's Ctrl-C doesn't reach the child:
        # the worker finishes its image. Its output goes into a pipe, not into the worker's log,
        # where it could write what it likes.
        arguments = (str(os.getpid()), str(self._memory_bytes))
        child = subprocess.Popen(  # noqa: S603 - our own module, numbers for arguments
            [sys.executable, "-m", "services.attachments.isolation.child", *arguments],
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
        self._child, self._images = child, 0
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
        raise _Late
