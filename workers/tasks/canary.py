"""A canary for each lane of this worker: a task that says how long it took to get here."""

from celery import Celery
from redis.exceptions import RedisError

from core.lanes import Lane
from storage.redis.canaries import Canaries
from storage.resources import Resources
from workers.context import ProcessContext

TASK = "lane.canary"


def connect(app: Celery, process: ProcessContext) -> None:
    def arrive(lane: str, sent: str) -> None:
        Canaries(process.get().resources.redis).arrived(lane, sent)

    app.task(arrive, name=TASK)


def send(resources: Resources, lanes: list[Lane]) -> None:
    canaries = Canaries(resources.redis)
    for lane in lanes:
        try:
            sent = canaries.due(lane)
        except RedisError:  # the next round asks again
            return
        if sent is not None:
            resources.broker.send(TASK, lane, {"lane": lane, "sent": sent})
