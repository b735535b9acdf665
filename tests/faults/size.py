"""How much of a fault each test brings about: little by default, `make faults` brings it all."""

import os

FULL = os.environ.get("PRESSROOM_FAULTS") == "full"


def sized(short: int, full: int) -> int:
    return full if FULL else short
