"""The worst outcome that each call may have during each fault.

The outcomes in this module are promises to operators and callers in docs/reliability.md, and not
the results of measurements.
"""

from dataclasses import dataclass
from enum import StrEnum

from tests.support.fault_matrix.calls import CALLS, WAIT_SECONDS, Outcome
from tests.support.fault_matrix.faults import FAULTS


class WorstOutcome(StrEnum):
    UNTOUCHED = "untouched"  # The call succeeds, and is as fast as without the fault.
    DONE = "done"  # The call succeeds, perhaps more slowly.
    LATER = "later"
    REFUSED = "refused"


ALLOWED = {
    WorstOutcome.UNTOUCHED: {Outcome.DONE},
    WorstOutcome.DONE: {Outcome.DONE},
    WorstOutcome.LATER: {Outcome.DONE, Outcome.LATER},
    WorstOutcome.REFUSED: {Outcome.DONE, Outcome.LATER, Outcome.REFUSED},
}


@dataclass(frozen=True)
class Promise:
    worst: WorstOutcome
    within_seconds: float  # For untouched calls, the full form also measures the slowdown.


# The maximum duration of a call: the time that the call asks the API to wait for a job, plus five
# seconds for everything else.
_MAX_SECONDS = WAIT_SECONDS + 5.0

UNTOUCHED = Promise(WorstOutcome.UNTOUCHED, _MAX_SECONDS)
DONE = Promise(WorstOutcome.DONE, 3.0)
SLOWLY = Promise(WorstOutcome.DONE, 15.0)
LATER = Promise(WorstOutcome.LATER, _MAX_SECONDS)
REFUSED = Promise(WorstOutcome.REFUSED, _MAX_SECONDS)
# The API refuses the call quickly, because the API doesn't wait for a lock, a connection or a
# failed service.
REFUSED_SOON = Promise(WorstOutcome.REFUSED, 3.0)

# The API needs S3 for uploads, media and imports. For an export, only the worker needs S3.
_NEED_S3 = {"upload": REFUSED, "media": REFUSED, "import": REFUSED, "export": LATER}
# The calls of ``/readyz`` and ``/metrics`` check the dependencies. The API waits a second for a
# dependency that hangs, and caches the result of a check for a second.
_WAITS_A_SECOND = dict.fromkeys(("readyz", "metrics"), DONE)
# The API calls for which the API uses Redis, for example to count the calls of a user. A fault of
# Redis doesn't affect other API calls.
_NEED_REDIS = {
    **dict.fromkeys(
        ("balance", "consume", "subscribe", "unsubscribe", "member page", "event stream"), DONE
    ),
    **dict.fromkeys(("readyz", "metrics"), DONE),
    **dict.fromkeys(("upload", "import", "export"), LATER),
    "composer": REFUSED,
    "topup": REFUSED,
}

_EXCEPTIONS: dict[str, dict[str, Promise]] = {
    "Postgres slow": dict.fromkeys(CALLS, SLOWLY)
    | dict.fromkeys(("upload", "import", "export"), Promise(WorstOutcome.LATER, 15.0))
    # Slow transactions keep their locks for a long time, so another call may find the list locked.
    | dict.fromkeys(("subscribe", "composer", "topup"), Promise(WorstOutcome.REFUSED, 15.0)),
    "Postgres gone": dict.fromkeys(CALLS, REFUSED) | {"metrics": DONE},
    "Redis hung": _NEED_REDIS,
    "Redis gone": _NEED_REDIS,
    "S3 hung": _NEED_S3 | _WAITS_A_SECOND,
    "S3 refusing": _NEED_S3,
    "S3 answering 503": _NEED_S3,
    "mail server hung": {},
    "model hung": {"composer": REFUSED},
    "photo provider hung": {},
    "payment provider hung": {"topup": REFUSED},
    "one list locked": {"subscribe": REFUSED_SOON, "unsubscribe": DONE, "import": LATER},
}

PROMISES = {
    (fault, call): _EXCEPTIONS[fault].get(call, UNTOUCHED) for fault in FAULTS for call in CALLS
}

# Maps each fault to the only API call that the tests make during the fault by default. With
# ``SIZE=full``, the tests make all API calls during each fault.
SHORT_FORM_CALLS = {
    "Postgres slow": "consume",
    "Postgres gone": "consume",
    "Redis hung": "composer",
    "Redis gone": "upload",
    "S3 hung": "balance",
    "S3 refusing": "export",
    "S3 answering 503": "upload",
    "mail server hung": "composer",
    "model hung": "topup",
    "photo provider hung": "topup",
    "payment provider hung": "composer",
    "one list locked": "unsubscribe",
}
