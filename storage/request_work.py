"""Work that lives only as long as its caller: input and result are Redis keys that expire.

There is no job row. The message carries an id; whoever finds no input under it (the caller has
gone, or the time is over) does nothing.
"""

import json
from typing import Any

import redis

from storage.notifications import CHANNEL, message, result_topic

RESULT_SECONDS = 60


def input_key(request_id: str) -> str:
    return f"pressroom:input:{request_id}"


def result_key(request_id: str) -> str:
    return f"pressroom:result:{request_id}"


def take_input(client: redis.Redis, request_id: str) -> dict[str, Any] | None:
    """What the caller sent, once; ``None`` when nobody waits for it any more."""
    text = client.getdel(input_key(request_id))
    if text is None:
        return None
    found: dict[str, Any] = json.loads(text)
    return found


def give_result(client: redis.Redis, request_id: str, result: dict[str, Any]) -> None:
    """Keep the result for a caller who asks, and tell it to the one who listens."""
    text = json.dumps(result)
    with client.pipeline(transaction=False) as together:
        together.set(result_key(request_id), text, ex=RESULT_SECONDS)
        together.publish(CHANNEL, message(result_topic(request_id), text))
        together.execute()
