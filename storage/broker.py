"""The one sender of tasks: a bare Celery producer, which knows queues but no task's code."""

import base64
import uuid
from functools import cache, partial
from typing import Any

import orjson
from celery import Celery
from kombu.entity import Queue
from kombu.exceptions import OperationalError
from kombu.transport import memory

from core.calls.breaker import Breaker
from core.lanes import Lane
from core.settings.store_settings import BrokerSettings

# Redis delivers a message again when it is not acknowledged within this time, which must be above
# every task's hard time limit: a slow task would run twice. A lost job does not wait for it: its
# lease expires within seconds.
VISIBILITY_TIMEOUT_SECONDS = 7200


# A sender keeps a request waiting.
_SENDER_TIMEOUTS = {
    "socket_timeout": 2,
    "socket_connect_timeout": 1,
    # Without it a refused connection is retried for six seconds, even with `retry=False`.
    "max_retries": 0,
}


def queue_name(lane: Lane) -> str:
    return f"pressroom.{lane}"


def celery_app(settings: BrokerSettings) -> Celery:
    """A Celery application with the settings that producer and worker must share."""
    return _app(settings.redis_url.get_secret_value())


def _app(url: str) -> Celery:
    app = Celery("pressroom", broker=url, set_as_current=False)
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


def message(task: str, lane: Lane, kwargs: dict[str, Any], *, task_id: str) -> bytes:
    """What ``Broker.send`` would put on the lane's queue, for a script that puts it there itself.

    The producer takes a tenth of a millisecond and a connection to do the same.
    """
    form = _form(task, lane)
    ids = {"id": task_id, "root_id": task_id, "kwargsrepr": repr(kwargs)}
    tags = {"correlation_id": task_id, "delivery_tag": str(uuid.uuid4())}
    return orjson.dumps(
        {
            **form,
            "body": base64.b64encode(orjson.dumps([[], kwargs, form["body"][2]])).decode(),
            "headers": {**form["headers"], **ids},
            "properties": {**form["properties"], **tags},
        }
    )


@cache
def _form(task: str, lane: Lane) -> dict[str, Any]:
    """A message of this task as Celery's producer makes it, taken from a broker in memory."""
    queue = queue_name(lane)
    with _app("memory://") as app:
        app.conf.broker_transport_options = {}
        app.send_task(task, kwargs={}, queue=queue)
    form: dict[str, Any] = memory.Channel.queues.pop(queue).get_nowait()
    return {**form, "body": orjson.loads(base64.b64decode(form["body"]))}


class Broker:
    def __init__(self, settings: BrokerSettings) -> None:
        self._app = celery_app(settings)
        self._app.conf.broker_transport_options |= _SENDER_TIMEOUTS
        self._breaker = Breaker("Redis", OperationalError)

    def send(
        self,
        task: str,
        lane: Lane,
        kwargs: dict[str, Any],
        *,
        task_id: str | None = None,
    ) -> bool:
        """Put one message on the lane's queue; ``False`` when the broker can't take it now.

        No work is lost by a ``False``: the sweep sends it again.
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
