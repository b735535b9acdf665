"""A worker that waits for receivers of webhooks for less time, and lets them rest for longest.

`python -m tests.probe.impatient_sender worker --lane webhooks`
"""

from datetime import timedelta

from integrations.receivers import posting
from services.webhooks import schedule
from tests.probe import tasks, worker

posting.MAX_CALL_SECONDS = 0.6
schedule.SILENCE = timedelta(seconds=0.3)
# No test, however slow its machine, sees a rest end by itself.
schedule.FIRST_REST = schedule.MAX_REST

if __name__ == "__main__":
    worker.main(tasks.TASKS)
