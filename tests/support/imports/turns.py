"""Turns of import jobs with a fixed number of chunks, so that a test doesn't depend on time."""


class TurnOfFourChunks:
    """Replaces the import job's ``Turn``: the turn is over after four chunks."""

    def __init__(self) -> None:
        self._chunks_left = 4

    def is_over(self) -> bool:
        self._chunks_left -= 1
        return self._chunks_left < 0
