import base64
import json
from typing import Any

import pytest

from core.queues import Queue
from devstack.harness.stack import Stack
from storage.task_messages import build_message, queue_name

KWARGS = {"request_id": "quoted ' and \" ünïcödé"}
# Message properties that are random: each message has its own ``delivery_tag``, and each producer
# has its own ``reply_to``.
UNIQUE_PROPERTIES = ("delivery_tag", "reply_to")


def _read(text: bytes) -> dict[str, Any]:
    """Parse a message, and remove the properties ``delivery_tag`` and ``reply_to``.

    Even two messages about the same task have different values of ``delivery_tag`` and
    ``reply_to``.
    """
    message: dict[str, Any] = json.loads(text)
    message["body"] = json.loads(base64.b64decode(message["body"]))
    unique_values = [message["properties"].pop(name) for name in UNIQUE_PROPERTIES]
    assert all(unique_values)
    return message


@pytest.mark.parametrize("queue", [Queue.REQUEST, Queue.MONEY])
def test_message_built_for_redis_scripts_equals_the_message_of_the_broker(
    empty_stack: Stack, queue: Queue
) -> None:
    broker = empty_stack.resources.broker
    redis = empty_stack.resources.redis
    assert broker.send("probe.none", queue, KWARGS, task_id="one")
    message = redis.rpop(queue_name(queue))
    assert isinstance(message, bytes)
    assert _read(build_message("probe.none", queue, KWARGS, task_id="one")) == _read(message)


def test_each_broker_message_has_a_unique_delivery_tag() -> None:
    messages = [build_message("probe.none", Queue.REQUEST, {}, task_id="one") for _ in range(2)]
    tags = {json.loads(each)["properties"]["delivery_tag"] for each in messages}
    assert len(tags) == 2
