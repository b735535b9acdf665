"""Replaces ``time.sleep`` on hosts with a fake clock. Python imports this module at its start.

Python sleeps until a time of the monotonic clock. libfaketime 0.9.10 rejects such sleeps (EINVAL),
although it doesn't fake this clock. It accepts sleeps with a duration.
"""

import select
import time
from typing import SupportsIndex


def _sleep(seconds: float | SupportsIndex) -> None:
    select.select((), (), (), float(seconds))


time.sleep = _sleep
