"""The one sender of tasks: a bare Celery producer, which knows queues but no task's code."""

from functools import partial
from typing import Any

from celery import Celery
from kombu.entity import Queue
from kombu.exceptions import OperationalError

from core.lanes import Lane
from core.settings import Settings
from storage.breaker import Breaker

# Redis delivers a message again when it is not acknowledged within this time, which must be above
# every task's hard time limit: a slow task would run twice. A lost job does not wait for it: its
# lease expires within seconds.
VISIBILITY_TIMEOUT_SECONDS = 3600


# A sender keeps a request waiting.
_SENDER_TIMEOUTS = {
    "socket_timeout": 2,
    "socket_connect_timeout": 1,
    # Without it a refused connection is retried for six seconds, even with `retry=False`.
    "max_retries": 0,
}


def queue_name(lane: Lane) -> str:
    return f"pressroom.{lane}"


def celery_app(settings: Settings) -> Celery:
    """A Celery application with the settings that producer and worker must share."""
    app = Celery("pressroom", broker=settings.redis_url.get_secret_value(), set_as_current=False)
    app.conf.update(
        task_serializer="json",
        accept_content=["json"],
        result_serializer="json",
        task_ignore_result=True,
        task_queues=[Queue(queue_name(lane), routing_key=queue_name(lane)) for lane in Lane],
        task_default_queue=queue_name(Lane.IO),
        # A mistyped queue name is an error, and makes no queue without workers.
        task_create_missing_queues=False,
        broker_connection_retry_on_startup=True,
        broker_transport_options={
            "visibility_timeout": VISIBILITY_TIMEOUT_SECONDS,
            "unacked_restore_limit": 100,
            "socket_keepalive": True,
            "health_check_interval": 10,
            # A consumer's socket waits for messages.
            "socket_timeout": 10,
            "socket_connect_timeout": 2,
        },
    )
    return app


class Broker:
    def __init__(self, settings: Settings) -> None:
        self._app = celery_app(settings)
        self._app.conf.broker_transport_options |= _SENDER_TIMEOUTS
        self._breaker = Breaker(OperationalError)

    def send(
        self,
        task: str,
        lane: Lane,
        kwargs: dict[str, Any],
        *,
        task_id: str | None = None,
    ) -> bool:
        """Put one message on the lane's queue; ``False`` when the broker can't take it now.

        No work is lost by a ``False``: the sweep sends durable work again, and the sender of
        request-only work refuses its caller.
        """
        send = partial(
            self._app.send_task,
            task,
            kwargs=kwargs,
            queue=queue_name(lane),
            task_id=task_id,
            retry=False,
        )
        return self._breaker.attempt("broker.send_failed", send, task=task) is not None

    def close(self) -> None:
        self._app.close()
