from dataclasses import dataclass
from enum import StrEnum


class Queue(StrEnum):
    """A queue with its own workers, so that one kind of work can't hold up another.

    Work is in one queue when it may wait for the same things and as long: the queues are by
    latency.
    """

    # A caller waits for the answer, which takes a core or a language model.
    REQUEST = "request"
    # A caller waits for a provider of stock photos.
    PHOTOS = "photos"
    # Orders at the payment providers. A caller may wait.
    MONEY = "money"
    # Waits for the mail server.
    MAIL = "mail"
    # Waits for the receivers of webhooks, servers that owners name.
    WEBHOOKS = "webhooks"
    # Minutes of a core.
    EXPORT = "export"
    # Conversion of images: about a second of a core, and a caller may wait for it.
    MEDIA = "media"
    # Bulk adds, imports and their undoing, in turns of a few seconds.
    BULK = "bulk"
    # Periodic work, removals and erasures, which no caller waits for.
    MAINTENANCE = "maintenance"


@dataclass(frozen=True)
class RequestKind:
    """A kind of request-only work: the name of its task, and the queue that does it."""

    task: str
    queue: Queue
