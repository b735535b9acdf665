"""How requests that wait for a job learn that it has ended."""

from collections.abc import Mapping

from api.limits.bulkheads import BACKGROUND
from api.waiting.waiters import Lookup, Waiters
from models import FINISHED
from services.jobs import records
from storage.database import Database
from storage.redis.notifications import job_of


def hear(waiters: Waiters[bool], topic: str, status: str) -> None:
    """A listener of the subscriber.

    A notification is only a hint, so the database is asked: pub/sub also carries those of other
    deployments on the same Redis server, whichever database they use.
    """
    if status in FINISHED:
        waiters.nudge(topic)


def lookup(database: Database) -> Lookup[bool]:
    def read(topics: list[str]) -> Mapping[str, bool]:
        wanted = {topic: job_of(topic) for topic in topics}
        finished = records.finished_among(database, list(wanted.values()))
        return {topic: True for topic, job_id in wanted.items() if job_id in finished}

    return lambda topics: BACKGROUND.run(read, topics)
