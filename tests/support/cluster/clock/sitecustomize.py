"""Read by Python on a host whose clock is wrong, before anything else.

Python sleeps until a time of the monotonic clock, which libfaketime 0.9.10 refuses (EINVAL), though
it leaves that clock alone. Sleeping for so long works.
"""

import select
import time
from typing import SupportsIndex


def _sleep(seconds: float | SupportsIndex) -> None:
    select.select((), (), (), float(seconds))


time.sleep = _sleep
