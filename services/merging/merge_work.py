"""What a stage of a merge is given, and what it says of one batch."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from core.keyring import Keyring
from storage.unit_of_work import UnitOfWork


class AccountGone(Exception):
    """The account's person was erased: their erasure has taken the other record along."""


@dataclass(frozen=True)
class MergeWork:
    keyring: Keyring
    merge_id: int
    # The account's person, and the record that becomes theirs.
    user_id: int
    merged_id: int
    # That of the record, and the account's former one; none when the stages look once more.
    addresses: tuple[str, ...]


class MergedBatch(NamedTuple):
    rows: int
    # Where the next batch goes on; ``None``: there is none.
    bookmark: int | None


MergeStage = Callable[[UnitOfWork, MergeWork, int | None], MergedBatch]
