"""Notifications of ended work, for requests that wait for it.

A notification is a hint and may be lost, so waiters also look into the database or Redis by
themselves (``api.waiting.waiters``).

Each API process that listens has a name, its *waiter*, and a channel of its own. Work is announced
to the processes whose callers wait for it, so that no process reads the news of all others. Work
for which no process is known is announced on the channel that all of them share.
"""

CHANNEL = "pressroom:notifications"


def channel_of(waiter: str | None) -> str:
    return f"{CHANNEL}:{waiter}" if waiter else CHANNEL


def job_topic(job_id: int) -> str:
    return f"job:{job_id}"


def job_of(topic: str) -> int:
    return int(topic.removeprefix("job:"))


def result_topic(request_id: str) -> str:
    return f"result:{request_id}"


def request_of(topic: str) -> str:
    return topic.removeprefix("result:")


def message(topic: str, value: str) -> str:
    """The message that a topic has changed, with its new value where the sender knows it."""
    return f"{topic} {value}"
