"""The child processes in which a worker reads posts and writes offline about them."""

from queue import Empty, LifoQueue
from typing import Any

from core.errors.composer import COMPOSER_POST_TOO_SLOW, COMPOSER_POST_UNREADABLE
from core.logging import get_logger
from core.process.child_process import ChildCrashed, ChildProcess, ChildTooSlow
from services.composer.post import PlainPost, Post
from services.composer.requests import MetadataRequest, SecondsLeft

log = get_logger(__name__)

MAX_POST_SECONDS = 20.0
# A post of the greatest length needed 514 MB of address space as measured, with all models loaded.
_MEMORY_BYTES = 1024 * 1024 * 1024
# A second child reads while a slow post occupies the first. Two take 500 MB with all models.
_MAX_CHILDREN = 2
_POSTS_PER_CHILD = 5_000
_MODULE = "services.composer.text_child"


class TextProcesses:
    """Reads posts and writes offline about them in child processes.

    Threads share the children. A thread waits for a free one only while a caller waits for the
    result. A child is started when all others are busy, and is kept.
    """

    def __init__(self, *, timeout: float = MAX_POST_SECONDS) -> None:
        self._timeout = timeout
        # The last one in is the first one out, so a child starts only if all others are busy.
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
        """Stop the children. Call this only while all are free."""
        for _ in range(_MAX_CHILDREN):
            child = self._free.get()
            child.close()
            self._free.put(child)

    def read(self, post: Post, seconds_left: SecondsLeft) -> PlainPost:
        """Return the post without its markup.

        Raises ``composer.post_too_slow``, ``composer.post_unreadable``, and what ``seconds_left``
        raises.
        """
        payload = {"title": post.title, "content": post.content}
        return PlainPost.from_payload(self._ask(payload, seconds_left))

    def write(self, request: MetadataRequest, seconds_left: SecondsLeft) -> dict[str, str]:
        """Return the fields that the offline writer writes; raises what ``read`` raises."""
        fields: dict[str, str] = self._ask(request.to_payload(), seconds_left)
        return fields

    def _ask(self, payload: dict[str, Any], seconds_left: SecondsLeft) -> Any:
        child = self._take(seconds_left)
        try:
            answer, _ = child.ask(payload)
        except ChildTooSlow:
            log.warning("composer.post_too_slow", characters=len(payload["content"]))
            raise COMPOSER_POST_TOO_SLOW(seconds=self._timeout) from None
        except ChildCrashed as crash:
            what = {"cause": crash.cause, "printed": crash.printed}
            log.error("composer.text_child_crashed", **what)  # noqa: TRY400 - the trace is the child's
            raise COMPOSER_POST_UNREADABLE() from None
        finally:
            self._free.put(child)
        return answer

    def _take(self, seconds_left: SecondsLeft) -> ChildProcess:
        """Return a free child. ``seconds_left`` raises once no caller waits."""
        while True:
            try:
                return self._free.get(timeout=seconds_left())
            except Empty:
                continue
