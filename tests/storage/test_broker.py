import base64
import json
from typing import Any

import pytest

from core.queues import Queue
from devstack.harness.stack import Stack
from storage.task_messages import build_message, queue_name

KWARGS = {"request_id": "quoted ' and \" ünïcödé"}
# Each message has a tag of its own, and each producer an address that no worker answers to.
OWN = ("delivery_tag", "reply_to")


def _read(text: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text)
    found["body"] = json.loads(base64.b64decode(found["body"]))
    own = [found["properties"].pop(name) for name in OWN]
    assert all(own)
    return found


@pytest.mark.parametrize("queue", [Queue.REQUEST, Queue.MONEY])
def test_message_built_for_redis_scripts_equals_the_message_of_the_broker(
    empty_stack: Stack, queue: Queue
) -> None:
    broker, redis = empty_stack.resources.broker, empty_stack.resources.redis
    assert broker.send("probe.none", queue, KWARGS, task_id="one")
    sent = redis.rpop(queue_name(queue))
    assert isinstance(sent, bytes)
    assert _read(build_message("probe.none", queue, KWARGS, task_id="one")) == _read(sent)


def test_each_broker_message_has_a_unique_delivery_tag() -> None:
    made = [build_message("probe.none", Queue.REQUEST, {}, task_id="one") for _ in range(2)]
    tags = {json.loads(each)["properties"]["delivery_tag"] for each in made}
    assert len(tags) == 2
