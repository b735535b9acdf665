"""Checkpoints of the ledger: how far it was verified, so that the next run goes on from there.

Each is signed under the deployment's secret keys, so a person who can write to the database can't
make one. An old one that is put back makes a run read more, and hides nothing.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from enum import Enum
from typing import Any

from sqlalchemy import Connection, delete, select, update
from sqlalchemy.dialects.postgresql import insert

from core.keyring import Keyring
from models import CreditCheckpoint, PaymentOrderCheckpoint
from storage.resources import Resources

_MAX_BATCH_ROWS = 1_000


class Seal(Enum):
    """What a signature says: ours, not ours, or made under a key that is not in the keyring."""

    GOOD = "good"
    FORGED = "forged"
    KEY_GONE = "key_gone"


@dataclass(frozen=True)
class Checkpoint:
    """An account after the entry ``seq``, up to which it had no fault."""

    user_id: int
    seq: int
    hash: bytes
    balance: Decimal
    debt: Decimal


class CheckpointBook:
    """Reads checkpoints by any connection, and writes them in transactions of its own."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._keyring: Keyring = resources.keyring
        self._signer = resources.keyring.signer("ledger-checkpoint")

    def distrusted(self, reading: Connection) -> Iterable[tuple[int, int, Seal]]:
        """The user and the number of the entry of each checkpoint that doesn't count, and why."""
        table = CreditCheckpoint.__table__.c
        for row in reading.execute(select(*table)):
            found = Checkpoint(row.user_id, row.seq, bytes(row.hash), row.balance, row.debt)
            seal = self._seal(_account_message(found), row.signature)
            if seal is not Seal.GOOD:
                yield found.user_id, found.seq, seal

    def last_change(self, reading: Connection) -> tuple[int | None, Seal]:
        """The change of an order's status up to which all orders were verified, if one was."""
        table = PaymentOrderCheckpoint.__table__.c
        rows = reading.execute(select(table.change_id, table.signature)).all()
        seals = [(row.change_id, self._seal(_order_message(row.change_id), row[1])) for row in rows]
        bad = next((seal for _, seal in seals if seal is not Seal.GOOD), None)
        if bad is not None:
            return None, bad
        return max((change_id for change_id, _ in seals), default=None), Seal.GOOD

    def write(self, checkpoints: Sequence[Checkpoint]) -> None:
        for start in range(0, len(checkpoints), _MAX_BATCH_ROWS):
            rows: list[dict[str, Any]] = [
                asdict(each)
                | {"signature": self._signer.sign(_account_message(each)), "is_suspect": False}
                # In one order, so that two runs at once don't lock each other out.
                for each in sorted(
                    checkpoints[start : start + _MAX_BATCH_ROWS], key=lambda each: each.user_id
                )
            ]
            written = insert(CreditCheckpoint).values(rows)
            changed = {name: written.excluded[name] for name in rows[0] if name != "user_id"}
            with self._resources.unit_of_work() as uow:
                uow.session.execute(
                    written.on_conflict_do_update(index_elements=["user_id"], set_=changed)
                )

    def write_last_change(self, change_id: int) -> None:
        with self._resources.unit_of_work() as uow:
            uow.session.execute(delete(PaymentOrderCheckpoint))
            signature = self._signer.sign(_order_message(change_id))
            row = insert(PaymentOrderCheckpoint).values(change_id=change_id, signature=signature)
            uow.session.execute(row.on_conflict_do_nothing())

    def suspect(self, user_ids: Iterable[int]) -> None:
        """Let these accounts be read whole each time, until one such run finds no fault."""
        of_users = CreditCheckpoint.user_id.in_(list(user_ids))
        with self._resources.unit_of_work() as uow:
            uow.session.execute(update(CreditCheckpoint).where(of_users).values(is_suspect=True))

    def forget_last_change(self) -> None:
        with self._resources.unit_of_work() as uow:
            uow.session.execute(delete(PaymentOrderCheckpoint))

    def _seal(self, message: bytes, signature: str) -> Seal:
        if self._signer.verify(message, signature):
            return Seal.GOOD
        is_known = self._keyring.get(signature.partition(".")[0]) is not None
        return Seal.FORGED if is_known else Seal.KEY_GONE


def _account_message(checkpoint: Checkpoint) -> bytes:
    """The account, the entry's number and hash, and the sums."""
    each = checkpoint
    sums = f"{each.balance:.4f} {each.debt:.4f}"
    return f"account {each.user_id} {each.seq} {each.hash.hex()} {sums}".encode()


def _order_message(change_id: int) -> bytes:
    return f"orders {change_id}".encode()
