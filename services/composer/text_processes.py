"""Runs the post parser and the offline writer in child processes of a worker."""

from contextlib import suppress
from queue import Empty, LifoQueue
from typing import Any

from core.errors.composer import COMPOSER_POST_TOO_SLOW, COMPOSER_POST_UNREADABLE
from core.errors.requests import REQUEST_TOO_SLOW
from core.logging import get_logger
from core.process.child_process import ChildCrashed, ChildLate, ChildProcess, ChildTooSlow
from services.composer.requests import MetadataRequest, SecondsLeft
from services.composer.text.post import PlainPost, Post

log = get_logger(__name__)

MAX_POST_CPU_SECONDS = 20.0
# The maximum address space of each child process. With all languages loaded and a post of the
# maximum length, a child process needed 514 MB of address space.
_MEMORY_BYTES = 1024 * 1024 * 1024
# Each worker has two child processes, so that one slow post doesn't block all other posts. With all
# languages loaded, both child processes together take 500 MB.
_MAX_CHILDREN = 2
_POSTS_PER_CHILD = 5_000
_MODULE = "services.composer.text_child"


class TextProcesses:
    """A pool of child processes that all threads of a worker share.

    If all child processes are busy, a thread waits for a free one until the API request times out.
    Child processes are started on demand and reused.
    """

    def __init__(self, *, cpu_seconds: float = MAX_POST_CPU_SECONDS) -> None:
        self._cpu_seconds = cpu_seconds
        # A thread takes the most recently used child process first, so that no additional child
        # process is started unnecessarily. Child processes are started only at their first use.
        self._free = LifoQueue[ChildProcess]()
        for _ in range(_MAX_CHILDREN):
            self._free.put(
                ChildProcess(
                    _MODULE,
                    cpu_seconds=cpu_seconds,
                    memory_bytes=_MEMORY_BYTES,
                    max_messages=_POSTS_PER_CHILD,
                )
            )

    def close(self) -> None:
        """Stop all child processes, which must be idle."""
        for _ in range(_MAX_CHILDREN):
            child = self._free.get()
            child.close()
            self._free.put(child)

    def read(self, post: Post, seconds_left: SecondsLeft) -> PlainPost:
        payload = {"title": post.title, "content": post.content}
        return PlainPost.from_payload(self._ask(payload, seconds_left))

    def write(self, request: MetadataRequest, seconds_left: SecondsLeft) -> dict[str, str]:
        fields: dict[str, str] = self._ask(request.to_payload(), seconds_left)
        return fields

    def _ask(self, payload: dict[str, Any], seconds_left: SecondsLeft) -> Any:
        child = self._take_child(seconds_left)
        try:
            seconds = seconds_left()
            answer, _ = child.ask(payload, wait_seconds=seconds)
        except ChildTooSlow:
            log.warning("composer.post_too_slow", characters=len(payload["content"]))
            raise COMPOSER_POST_TOO_SLOW(seconds=self._cpu_seconds) from None
        except ChildLate:
            raise REQUEST_TOO_SLOW(seconds=round(seconds)) from None
        except ChildCrashed as crash:
            details = {"cause": crash.cause, "printed": crash.printed}
            log.error("composer.text_child_crashed", **details)  # noqa: TRY400 - the trace is the child's
            raise COMPOSER_POST_UNREADABLE() from None
        finally:
            self._free.put(child)
        return answer

    def _take_child(self, seconds_left: SecondsLeft) -> ChildProcess:
        with suppress(Empty):
            return self._free.get_nowait()
        while True:
            with suppress(Empty):
                return self._free.get(timeout=seconds_left())
