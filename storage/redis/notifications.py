"""Builds the notifications that report finished work to waiting requests.

Notifications may be lost, so waiting requests also poll the database or Redis
(``api.waiting.waiters``).

Each API process that waits for results has a name (its *waiter*) and a Redis channel. A job's
change is announced to the process that enqueued the job, and a worker's result to the processes
whose callers wait for it. If no process is known, the notification is sent on a channel that every
API process reads.

This module doesn't import the Redis library, so that commands that don't use Redis start faster.
"""

CHANNEL = "pressroom:notifications"


def build_channel_name(waiter: str | None) -> str:
    return f"{CHANNEL}:{waiter}" if waiter else CHANNEL


def build_job_topic(job_id: int) -> str:
    return f"job:{job_id}"


def parse_job_topic(topic: str) -> int:
    return int(topic.removeprefix("job:"))


def build_result_topic(request_id: str) -> str:
    return f"result:{request_id}"


def parse_result_topic(topic: str) -> str:
    return topic.removeprefix("result:")


def build_notification(topic: str, value: str) -> str:
    return f"{topic} {value}"
