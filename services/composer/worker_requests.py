"""The contract between the composer's routes and its workers.

A request and its result travel as JSON. API and worker may be of different releases, so a payload's
keys keep their names and meaning.
"""

from collections.abc import Callable
from typing import Any, ClassVar, Protocol

from core.lanes import RequestKind

# For how many seconds a caller still waits. Raises once none does, so call it before each step
# that costs something.
SecondsLeft = Callable[[], float]


class WorkerRequest(Protocol):
    kind: ClassVar[RequestKind]
    # The longest wait for the result, the time in the queue included.
    max_seconds: ClassVar[float]

    def to_payload(self) -> dict[str, Any]: ...
