"""Replaces ``time.sleep`` on hosts whose clock is faked. Python imports this module when it starts.

Python sleeps until a time of the monotonic clock. libfaketime 0.9.10 rejects such sleeps (EINVAL),
although it doesn't fake this clock. libfaketime accepts sleeps for a number of seconds.
"""

import select
import time
from typing import SupportsIndex


def _sleep(seconds: float | SupportsIndex) -> None:
    select.select((), (), (), float(seconds))


time.sleep = _sleep
