import fcntl
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from core.refusals.media import IMAGE_CRASHED, IMAGE_CRASHED_TWICE, IMAGE_TIMEOUT
from services.media.images.child_messages import ANSWER, REQUEST, outcome
from services.media.images.outcome import ConvertedImage, UnreadableImage, refused

# The largest legal image, two WebP frames of 49 MP, was measured to need 2.24 GB of address space.
MEMORY_BYTES = 3 * 1024 * 1024 * 1024
_IMAGES_PER_CHILD = 500
_PIPE_BYTES = 1024 * 1024
_GRACE_SECONDS = 1.0
_ROOT = Path(__file__).parents[3]


class _Gone(Exception):
    """The child closed its end before it answered."""


class _Late(Exception):
    """The child did not answer in time."""


class ConverterProcess:
    """Converts in a child process, so that a hostile image can hurt nothing else.

    For one thread at a time. The child dies with the thread that started it; a new one is started
    when the next image needs it. `timeout` in seconds and `memory_bytes` of address space are per
    image.
    """

    def __init__(self, *, timeout: float = 30.0, memory_bytes: int = MEMORY_BYTES) -> None:
        self._timeout = timeout
        self._memory_bytes = memory_bytes
        self._child: subprocess.Popen[bytes] | None = None
        self._owner = os.getpid()
        self._images = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        return self._child.pid if self._child else None

    def start(self) -> None:
        """Start the child now, so that the first image does not wait for it."""
        self._usable()

    def convert(self, data: bytes) -> ConvertedImage:
        """As `conversion.convert`, and within the limits. Raises UnreadableImage."""
        result = self._ask(data) or self._ask(data)
        if result is None:
            raise refused(IMAGE_CRASHED_TWICE)
        if isinstance(result, UnreadableImage):
            raise result
        return result

    def close(self) -> None:
        """Let the child go; it may be in the middle of nothing."""
        if self._child is not None and self._owner == os.getpid():
            self._end(self._child)
        self._child = None

    def _ask(self, data: bytes) -> ConvertedImage | UnreadableImage | None:
        """None when the child had retired before it saw this image."""
        child = self._usable()
        try:
            return self._exchange(child, data)
        except _Late:
            self._kill(child)
            raise refused(IMAGE_TIMEOUT, seconds=self._timeout) from None
        except _Gone:
            status = self._kill(child, grace=_GRACE_SECONDS)
        except BaseException:
            # A time limit's exception may come at any point: the half-read answer must not be
            # taken for the next image's.
            self._kill(child)
            raise
        if status == 0:
            return None
        raise refused(IMAGE_CRASHED, cause=_cause(status))

    def _usable(self) -> subprocess.Popen[bytes]:
        if self._owner != os.getpid():
            # After a fork the child is our parent's: leave it alone and have our own.
            self._child, self._owner = None, os.getpid()
        child = self._child
        if child is not None and (child.poll() is not None or self._images >= _IMAGES_PER_CHILD):
            self._end(child)
            child = None
        if child is None:
            self._images = 0
            child = self._child = _started(self._memory_bytes)
        return child

    def _exchange(
        self, child: subprocess.Popen[bytes], data: bytes
    ) -> ConvertedImage | UnreadableImage:
        deadline = time.monotonic() + self._timeout
        self._images += 1
        requests, answers = _descriptor(child.stdin), _descriptor(child.stdout)
        _send(requests, REQUEST.pack(len(data)), deadline)
        _send(requests, data, deadline)
        text_length, data_length = ANSWER.unpack(_receive(answers, ANSWER.size, deadline))
        text = _receive(answers, text_length, deadline)
        return outcome(text, _receive(answers, data_length, deadline))

    def _end(self, child: subprocess.Popen[bytes]) -> None:
        if child.stdin:
            child.stdin.close()
        self._kill(child, grace=_GRACE_SECONDS)

    def _kill(self, child: subprocess.Popen[bytes], *, grace: float = 0.0) -> int:
        """Its exit status: its own if it ends by itself within `grace` seconds."""
        with suppress(subprocess.TimeoutExpired):
            child.wait(grace)
        child.kill()
        status = child.wait()
        for pipe in (child.stdin, child.stdout):
            if pipe:
                pipe.close()
        self._child = None
        return status


def _started(memory_bytes: int) -> subprocess.Popen[bytes]:
    # The root as working directory puts our packages first on its path, wherever we run from. A
    # group of its own keeps a terminal's Ctrl-C away: a worker finishes the image it is at.
    child = subprocess.Popen(  # noqa: S603 - our own module, numbers for arguments
        [sys.executable, "-m", "services.media.images.child", str(os.getpid()), str(memory_bytes)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
        cwd=_ROOT,
        env=_environment(os.environ),
        process_group=0,
    )
    for pipe in (child.stdin, child.stdout):
        os.set_blocking(_descriptor(pipe), False)
        with suppress(OSError):  # refused to a user who has many pipes; it is only speed
            fcntl.fcntl(_descriptor(pipe), fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    return child


def _environment(ours: Mapping[str, str]) -> dict[str, str]:
    return {name: ours[name] for name in ours if name == "PATH" or name.startswith("PYTHON")}


def _descriptor(pipe: IO[bytes] | None) -> int:
    if pipe is None or pipe.closed:
        raise _Gone
    return pipe.fileno()


def _send(descriptor: int, data: bytes, deadline: float) -> None:
    rest = memoryview(data)
    while rest:
        _await(descriptor, select.POLLOUT, deadline)
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:
            continue
        except BrokenPipeError:
            raise _Gone from None


def _receive(descriptor: int, length: int, deadline: float) -> bytes:
    received = bytearray(length)
    rest = memoryview(received)
    while rest:
        _await(descriptor, select.POLLIN, deadline)
        count = os.readv(descriptor, [rest])
        if not count:
            raise _Gone
        rest = rest[count:]
    return bytes(received)


def _await(descriptor: int, event: int, deadline: float) -> None:
    poll = select.poll()
    poll.register(descriptor, event)
    remaining = deadline - time.monotonic()
    if remaining <= 0 or not poll.poll(remaining * 1000):
        raise _Late


def _cause(status: int) -> str:
    if status < 0:
        return f"signal {signal.Signals(-status).name}"
    return f"exit status {status}"
