"""Runs the post parser and the offline writer in child processes of a worker."""

from queue import Empty, LifoQueue
from typing import Any

from core.errors.composer import COMPOSER_POST_TOO_SLOW, COMPOSER_POST_UNREADABLE
from core.logging import get_logger
from core.process.child_process import ChildCrashed, ChildProcess, ChildTooSlow
from services.composer.requests import MetadataRequest, SecondsLeft
from services.composer.text.post import PlainPost, Post

log = get_logger(__name__)

MAX_POST_SECONDS = 20.0
# The maximum address space of each child process. In a test, a child process with the models of all
# languages needed 514 MB of address space for a post of the maximum length.
_MEMORY_BYTES = 1024 * 1024 * 1024
# Each worker has two child processes, so that one slow post doesn't block all other posts. Two
# child processes with the models of all languages take 500 MB of memory.
_MAX_CHILDREN = 2
_POSTS_PER_CHILD = 5_000
_MODULE = "services.composer.text_child"


class TextProcesses:
    """A pool of child processes that parse posts and run the offline writer.

    All threads of a worker share one pool of child processes. If all child processes are busy, a
    thread waits for an idle child process as long as a caller waits for the result. Child processes
    are started on demand and reused.
    """

    def __init__(self, *, timeout: float = MAX_POST_SECONDS) -> None:
        self._timeout = timeout
        # A LIFO queue returns the child process that was used last, so that the second child
        # process is started only if the first process is busy.
        self._free = LifoQueue[ChildProcess]()
        for _ in range(_MAX_CHILDREN):
            self._free.put(
                ChildProcess(
                    _MODULE,
                    timeout=timeout,
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
        """Parse a post in a child process, and return its text without markup.

        Raises ``composer.post_too_slow``, ``composer.post_unreadable``, and all errors that
        ``seconds_left`` raises.
        """
        payload = {"title": post.title, "content": post.content}
        return PlainPost.from_payload(self._ask(payload, seconds_left))

    def write(self, request: MetadataRequest, seconds_left: SecondsLeft) -> dict[str, str]:
        """Write the requested metadata fields or tweets with the offline writer in a child process.

        Raises ``composer.post_too_slow``, ``composer.post_unreadable``, and all errors that
        ``seconds_left`` raises.
        """
        fields: dict[str, str] = self._ask(request.to_payload(), seconds_left)
        return fields

    def _ask(self, payload: dict[str, Any], seconds_left: SecondsLeft) -> Any:
        child = self._take_child(seconds_left)
        try:
            answer, _ = child.ask(payload)
        except ChildTooSlow:
            log.warning("composer.post_too_slow", characters=len(payload["content"]))
            raise COMPOSER_POST_TOO_SLOW(seconds=self._timeout) from None
        except ChildCrashed as crash:
            details = {"cause": crash.cause, "printed": crash.printed}
            log.error("composer.text_child_crashed", **details)  # noqa: TRY400 - the trace is the child's
            raise COMPOSER_POST_UNREADABLE() from None
        finally:
            self._free.put(child)
        return answer

    def _take_child(self, seconds_left: SecondsLeft) -> ChildProcess:
        """Wait for an idle child process, and return this process.

        Raises the error of ``seconds_left`` if no caller waits for the result anymore.
        """
        while True:
            try:
                return self._free.get(timeout=seconds_left())
            except Empty:
                continue
