"""What must be in each cell: the worst that may become of a call while something is wrong.

These are promises to operators and callers (docs/reliability.md), made before anything is measured.
"""

from dataclasses import dataclass
from enum import StrEnum

from tests.support.fault_matrix.calls import CALLS, WAIT_SECONDS, Outcome
from tests.support.fault_matrix.faults import FAULTS


class Worst(StrEnum):
    UNTOUCHED = "untouched"  # done, and as quick as ever
    DONE = "done"  # in the call, perhaps more slowly
    LATER = "later"
    REFUSED = "refused"


ALLOWED = {
    Worst.UNTOUCHED: {Outcome.DONE},
    Worst.DONE: {Outcome.DONE},
    Worst.LATER: {Outcome.DONE, Outcome.LATER},
    Worst.REFUSED: {Outcome.DONE, Outcome.LATER, Outcome.REFUSED},
}


@dataclass(frozen=True)
class Promise:
    worst: Worst
    within_seconds: float  # generous where the full form measures a ratio


# The wait that a call asks for, and what it takes around it.
_WAITED = WAIT_SECONDS + 5.0

UNTOUCHED = Promise(Worst.UNTOUCHED, _WAITED)
DONE = Promise(Worst.DONE, 3.0)
SLOWLY = Promise(Worst.DONE, 15.0)
LATER = Promise(Worst.LATER, _WAITED)
REFUSED = Promise(Worst.REFUSED, _WAITED)
# Without any wait: for a lock, a connection or a dependency that is known to be away.
REFUSED_SOON = Promise(Worst.REFUSED, 3.0)

# The API can't do these without S3; what is accepted needs it later.
_NEED_S3 = {"upload": REFUSED, "media": REFUSED, "import": REFUSED, "export": LATER}
# The answer waits a second for a dependency that hangs, and is kept for a second.
_WAITS_A_SECOND = dict.fromkeys(("readyz", "metrics"), DONE)
# Calls are counted and callers notified by Redis; a call that needs neither is untouched.
_NEED_REDIS = {
    **dict.fromkeys(
        ("balance", "consume", "subscribe", "unsubscribe", "member page", "event stream"), DONE
    ),
    **dict.fromkeys(("readyz", "metrics"), DONE),
    **dict.fromkeys(("upload", "import", "export"), LATER),
    "composer": REFUSED,
    "topup": REFUSED,
}

_TOUCHED: dict[str, dict[str, Promise]] = {
    "Postgres slow": dict.fromkeys(CALLS, SLOWLY)
    | dict.fromkeys(("upload", "import", "export"), Promise(Worst.LATER, 15.0))
    # Changes of one list hold it for longer, so others find it busy.
    | dict.fromkeys(("subscribe", "composer", "topup"), Promise(Worst.REFUSED, 15.0)),
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
    (fault, call): _TOUCHED[fault].get(call, UNTOUCHED) for fault in FAULTS for call in CALLS
}

# Of each fault the cell that says most, for the short form.
TELLING = {
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
