"""Converts images in a child process with limits on time and memory."""

from typing import Self

from core.counters.work_metrics import CONVERSION_SECONDS, KILLS, Kill
from core.errors import MachineBusy
from core.errors.media import IMAGE_CRASHED, IMAGE_TIMEOUT
from core.logging import get_logger
from core.process.child_process import ChildCrashed, ChildLate, ChildProcess, ChildTooSlow
from services.attachments.images.outcome import (
    ConvertedImage,
    Rendition,
    UnreadableImage,
    create_refusal,
)
from services.attachments.isolation.child import parse_answer

MAX_CPU_SECONDS = 30.0
# The maximum address space of the child process that converts images. In tests, converting an image
# never needed more than 2.24 GB of address space.
MEMORY_BYTES = 3 * 1024 * 1024 * 1024
# The child process is replaced after it has converted this many images. If a hostile image takes
# control of the child process, it can affect later images only until the process is replaced.
_IMAGES_PER_CHILD = 500
_MODULE = "services.attachments.isolation.child"
_log = get_logger(__name__)


class ConverterProcess:
    """Converts images in a child process, so that a hostile image can't harm the worker.

    A conversion fails if it takes more than ``cpu_seconds`` of CPU time, or if it needs more than
    ``memory_bytes`` of address space. A conversion that isn't finished within ``wait_seconds``
    raises ``MachineBusy``, and can be retried. Threads must not share a ``ConverterProcess``.
    """

    def __init__(
        self,
        *,
        cpu_seconds: float = MAX_CPU_SECONDS,
        wait_seconds: float | None = None,
        memory_bytes: int = MEMORY_BYTES,
    ) -> None:
        self._cpu_seconds = cpu_seconds
        self._child = ChildProcess(
            _MODULE,
            cpu_seconds=cpu_seconds,
            wait_seconds=wait_seconds,
            memory_bytes=memory_bytes,
            max_messages=_IMAGES_PER_CHILD,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        return self._child.pid

    def start(self) -> None:
        self._child.start()

    def convert(self, data: bytes, *, with_renditions: bool = False) -> ConvertedImage:
        result = self._ask({"with_renditions": with_renditions}, data)
        if not isinstance(result, ConvertedImage):
            raise TypeError("the child process answered with a thumbnail")
        return result

    def create_thumbnail(self, data: bytes) -> Rendition:
        result = self._ask({}, data)
        if not isinstance(result, Rendition):
            raise TypeError("the child process answered with a converted image")
        return result

    def _ask(self, request: dict[str, bool], data: bytes) -> ConvertedImage | Rendition:
        with CONVERSION_SECONDS.time():
            try:
                result = parse_answer(*self._child.ask(request, data))
            except ChildTooSlow:
                KILLS.labels(Kill.TOO_SLOW).inc()
                raise create_refusal(IMAGE_TIMEOUT, seconds=self._cpu_seconds) from None
            except ChildLate:
                KILLS.labels(Kill.LATE).inc()
                raise MachineBusy from None
            except ChildCrashed as crash:
                KILLS.labels(Kill.CRASHED).inc()
                _log.error("converter.crashed", cause=crash.cause, printed=crash.printed)
                raise create_refusal(IMAGE_CRASHED, cause=crash.cause) from None
        if isinstance(result, UnreadableImage):
            raise result
        return result

    def close(self) -> None:
        """Stop the child process. Don't call ``close`` during the conversion of an image."""
        self._child.close()
