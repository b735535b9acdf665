"""Runs a webhook worker with a shorter timeout for receivers, and longer pauses after timeouts.

``python -m tests.support.probe.impatient_sender worker --queue webhooks`` starts a webhook worker
with a shorter timeout.
"""

from datetime import timedelta

from core.pauses import Pauses
from integrations.receivers import client
from services.webhooks import outcomes
from tests.support.probe import worker

client.MAX_CALL_SECONDS = 1.2
outcomes.MIN_SILENT_DURATION = timedelta(seconds=0.6)
# The pause is so long that it never ends during a test, even on a slow machine.
outcomes.RESTS = Pauses((outcomes.MAX_REST,))

if __name__ == "__main__":
    worker.main()
