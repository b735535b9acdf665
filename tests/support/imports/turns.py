"""Turns of import jobs that don't depend on time."""


class ShortTurn:
    """A turn that is over when the job asks for the fifth time, after its fifth chunk."""

    def __init__(self) -> None:
        self._checks_left = 4

    def is_over(self) -> bool:
        self._checks_left -= 1
        return self._checks_left < 0
