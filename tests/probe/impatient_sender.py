"""A worker that waits for receivers of webhooks for less time.

`python -m tests.probe.impatient_sender worker --lane webhooks`
"""

from datetime import timedelta

from integrations.receivers import posting
from services.webhooks import schedule
from tests.probe import tasks, worker

posting.MAX_CALL_SECONDS = 0.6
schedule.SILENCE = timedelta(seconds=0.3)

if __name__ == "__main__":
    worker.main(tasks.TASKS)
