"""A worker that waits for receivers of webhooks for less time, and lets them rest for longest.

`python -m tests.support.probe.impatient_sender worker --queue webhooks`
"""

from datetime import timedelta

from integrations.receivers import client
from services.webhooks import outcomes
from tests.support.probe import worker

client.MAX_CALL_SECONDS = 1.2
outcomes.SILENCE = timedelta(seconds=0.6)
# No test, however slow its machine, sees a rest end by itself.
outcomes.FIRST_REST = outcomes.MAX_REST

if __name__ == "__main__":
    worker.main()
