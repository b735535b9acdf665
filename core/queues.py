"""The queues of the workers, and the kinds of work that run only for a waiting request."""

from dataclasses import dataclass
from enum import StrEnum


class Queue(StrEnum):
    """A queue with its own workers, so that one kind of work can't delay another kind.

    A queue contains work with similar durations, which waits for the same servers.
    """

    # Work of the composer, for which a caller waits. The work needs a CPU core or a language model.
    REQUEST = "request"
    # Searches at the providers of stock photos. A caller waits for the result.
    PHOTOS = "photos"
    # Orders at the payment providers. A caller may wait for the result.
    MONEY = "money"
    # Mails, which depend on the speed of the mail server.
    MAIL = "mail"
    # Webhook deliveries, which depend on the speed of the owners' servers.
    WEBHOOKS = "webhooks"
    # Exports, which use a CPU core for minutes.
    EXPORT = "export"
    # Image conversions, which use a CPU core for about a second. A caller may wait for the result.
    MEDIA = "media"
    # Bulk adds, imports and undos of imports, in turns of a few seconds.
    BULK = "bulk"
    # Periodic tasks, deletions and erasures. No caller waits for the result.
    MAINTENANCE = "maintenance"


@dataclass(frozen=True)
class RequestKind:
    """A kind of work that runs only for a waiting request, with its Celery task and its queue."""

    task: str
    queue: Queue
