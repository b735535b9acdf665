"""What a stage of an erasure is: a function that erases one batch in a transaction."""

from collections.abc import Callable
from typing import NamedTuple

from storage.unit_of_work import UnitOfWork


class Batch(NamedTuple):
    rows: int
    # Where the next batch goes on; ``None``: there is none.
    bookmark: int | None


# Called with the person's id and the bookmark, if any.
Stage = Callable[[UnitOfWork, int, int | None], Batch]
