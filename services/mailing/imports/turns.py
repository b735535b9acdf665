import time

# Long enough that taking turns costs little, and short enough that a small import does not wait
# longer than this for a large one.
TURN_SECONDS = 4.0


class Turn:
    """A few seconds of work, after which a job goes to the end of the bulk lane."""

    def __init__(self) -> None:
        self._ends = time.monotonic() + TURN_SECONDS

    def is_over(self) -> bool:
        return time.monotonic() >= self._ends
