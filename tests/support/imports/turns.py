"""Turns of import jobs that end after a number of chunks instead of after some seconds."""


class ShortTurn:
    def __init__(self, *_: object) -> None:
        self._checks_left = 4

    def is_over(self) -> bool:
        self._checks_left -= 1
        return self._checks_left < 0
