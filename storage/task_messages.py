"""The messages that start tasks, in the format of Celery."""

import base64
import uuid
from functools import cache
from typing import Any

import orjson
from celery import Celery
from kombu.entity import Queue as BrokerQueue
from kombu.transport import memory

from core.queues import Queue


def queue_name(queue: Queue) -> str:
    return f"pressroom.{queue}"


def build_app(**connection: Any) -> Celery:
    app = Celery("pressroom", set_as_current=False)
    app.conf.update(
        task_serializer="json",
        accept_content=["json"],
        result_serializer="json",
        task_ignore_result=True,
        task_queues=[BrokerQueue(name, routing_key=name) for name in map(queue_name, Queue)],
        task_default_queue=queue_name(Queue.MAINTENANCE),
        # By default, Celery would create a queue for a mistyped name, and no worker would serve it.
        task_create_missing_queues=False,
        broker_connection_retry_on_startup=True,
        **connection,
    )
    return app


def build_message(task: str, queue: Queue, kwargs: dict[str, Any], *, task_id: str) -> bytes:
    """Return a task message as bytes, so that a Redis script can enqueue the message.

    Celery's own producer isn't used, because it is slower and needs its own connection.
    """
    template = _build_template(task, queue)
    ids = {"id": task_id, "root_id": task_id, "kwargsrepr": repr(kwargs)}
    tags = {"correlation_id": task_id, "delivery_tag": str(uuid.uuid4())}
    return orjson.dumps(
        {
            **template,
            "body": base64.b64encode(orjson.dumps([[], kwargs, template["body"][2]])).decode(),
            "headers": {**template["headers"], **ids},
            "properties": {**template["properties"], **tags},
        }
    )


@cache
def _build_template(task: str, queue: Queue) -> dict[str, Any]:
    name = queue_name(queue)
    with build_app(broker_url="memory://") as app:
        app.send_task(task, kwargs={}, queue=name)
    template: dict[str, Any] = memory.Channel.queues.pop(name).get_nowait()
    return {**template, "body": orjson.loads(base64.b64decode(template["body"]))}
