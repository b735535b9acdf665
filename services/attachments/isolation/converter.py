from typing import Self

from core.counters.work_metrics import CONVERSION_SECONDS, KILLS, Kill
from core.errors.media import IMAGE_CRASHED, IMAGE_TIMEOUT
from core.logging import get_logger
from core.process.child_process import ChildCrashed, ChildProcess, ChildTooSlow
from services.attachments.images.outcome import ConvertedImage, UnreadableImage, refused
from services.attachments.isolation.child import outcome

# The largest legal image, two WebP frames of 49 MP, needed 2.24 GB of address space as measured.
MEMORY_BYTES = 3 * 1024 * 1024 * 1024
# Code that stays in a child can see and change the images after its own.
_IMAGES_PER_CHILD = 500
_MODULE = "services.attachments.isolation.child"
_log = get_logger(__name__)


class ConverterProcess:
    """Converts in a child process, so that a hostile image can harm nothing else.

    Only one thread may use it at a time. Each image may take `timeout` seconds and `memory_bytes`
    of address space.
    """

    def __init__(self, *, timeout: float = 30.0, memory_bytes: int = MEMORY_BYTES) -> None:
        self._timeout = timeout
        self._child = ChildProcess(
            _MODULE, timeout=timeout, memory_bytes=memory_bytes, max_messages=_IMAGES_PER_CHILD
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        return self._child.pid

    def start(self) -> None:
        """Start the child now, so that the first image doesn't wait for it."""
        self._child.start()

    def convert(self, data: bytes, *, with_renditions: bool = False) -> ConvertedImage:
        """Do as `conversion.convert` does, within the limits; raises UnreadableImage."""
        with CONVERSION_SECONDS.time():
            try:
                result = outcome(*self._child.ask({"with_renditions": with_renditions}, data))
            except ChildTooSlow:
                KILLS.labels(Kill.TOO_SLOW).inc()
                raise refused(IMAGE_TIMEOUT, seconds=self._timeout) from None
            except ChildCrashed as crash:
                KILLS.labels(Kill.CRASHED).inc()
                _log.error("converter.crashed", cause=crash.cause, printed=crash.printed)
                raise refused(IMAGE_CRASHED, cause=crash.cause) from None
        if isinstance(result, UnreadableImage):
            raise result
        return result

    def close(self) -> None:
        """Stop the child. Call this only while the child is idle."""
        self._child.close()
