"""The queues that workers serve, and the kinds of work that run while an HTTP request waits."""

from dataclasses import dataclass
from enum import StrEnum


class Queue(StrEnum):
    """A queue that dedicated workers serve, so that its jobs can't delay the jobs in other queues.

    The jobs in a queue take a similar amount of time and depend on the same servers.
    """

    # The queue for composer calls. An API caller waits for the result of each call.
    REQUEST = "request"
    # The queue for searches for stock photos. An API caller waits for the result of each search.
    PHOTOS = "photos"
    # The queue for calls to payment providers. An API caller often waits for the result of a call.
    MONEY = "money"
    # Tasks that send mail and take as long as the mail server needs.
    MAIL = "mail"
    # Webhook deliveries, which depend on the speed of the owners' servers.
    WEBHOOKS = "webhooks"
    # Exports. An export uses a CPU core for minutes.
    EXPORT = "export"
    # Image conversions. An image conversion uses a CPU core for about a second.
    MEDIA = "media"
    # Bulk adds, imports and undos of imports, which pause every few seconds to let other jobs run.
    BULK = "bulk"
    # Periodic tasks, deletions and erasures, which never keep an API caller waiting.
    MAINTENANCE = "maintenance"


@dataclass(frozen=True)
class RequestKind:
    """A kind of work that a Celery task does while an HTTP request waits for the result."""

    task: str
    queue: Queue
