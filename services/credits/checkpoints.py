"""Stores signed checkpoints, so that a verification of the ledger can skip verified entries.

Checkpoints are signed with a secret key, so access to the database isn't enough to forge them. For
an account without a validly signed checkpoint, all ledger entries are verified.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal

from sqlalchemy import Connection, delete, select, update
from sqlalchemy.dialects.postgresql import insert

from models import CreditCheckpoint, PaymentOrderCheckpoint
from storage.resources import Resources


@dataclass(frozen=True)
class Checkpoint:
    """The state of a credit account after the ledger entry with the number ``seq``."""

    user_id: int
    seq: int
    hash: bytes
    balance: Decimal
    debt: Decimal

    @property
    def message(self) -> bytes:
        sums = f"{self.balance:.4f} {self.debt:.4f}"
        return f"account {self.user_id} {self.seq} {self.hash.hex()} {sums}".encode()


class CheckpointBook:
    """Reads and writes the checkpoints of the ledger.

    A verification may read the checkpoints from a replica of the database. New checkpoints are
    written to the primary database, in a separate transaction.
    """

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._signer = resources.keyring.signer("ledger-checkpoint")

    def unverified_users(self, connection: Connection) -> list[int]:
        table = CreditCheckpoint.__table__.c
        user_ids = []
        for row in connection.execute(select(*table)):
            checkpoint = Checkpoint(row.user_id, row.seq, bytes(row.hash), row.balance, row.debt)
            if not self._signer.verify(checkpoint.message, row.signature):
                user_ids.append(row.user_id)
        return user_ids

    def last_verified_change(self, connection: Connection) -> int | None:
        """Return the id up to which all changes of orders' statuses are verified, or ``None``."""
        table = PaymentOrderCheckpoint.__table__.c
        rows = connection.execute(select(table.change_id, table.signature)).all()
        verified_ids = (id_ for id_, seal in rows if self._signer.verify(_order_message(id_), seal))
        return max(verified_ids, default=None)

    def write(self, checkpoints: Sequence[Checkpoint]) -> None:
        if not checkpoints:
            return
        rows = [
            asdict(checkpoint)
            | {"signature": self._signer.sign(checkpoint.message), "is_suspect": False}
            # Sort the checkpoints, so that two simultaneous verifications can't deadlock.
            for checkpoint in sorted(checkpoints, key=lambda checkpoint: checkpoint.user_id)
        ]
        insertion = insert(CreditCheckpoint).values(rows)
        replacements = {name: insertion.excluded[name] for name in rows[0] if name != "user_id"}
        upsert = insertion.on_conflict_do_update(index_elements=["user_id"], set_=replacements)
        with self._resources.unit_of_work() as uow:
            uow.session.execute(upsert)

    def write_last_verified_change(self, change_id: int | None) -> None:
        """Store the id of the newest verified change of an order's status.

        ``None`` deletes the stored id, so that the next verification reads all orders.
        """
        with self._resources.unit_of_work() as uow:
            uow.session.execute(delete(PaymentOrderCheckpoint))
            if change_id is None:
                return
            signature = self._signer.sign(_order_message(change_id))
            row = insert(PaymentOrderCheckpoint).values(change_id=change_id, signature=signature)
            uow.session.execute(row.on_conflict_do_nothing())

    def mark_suspect(self, user_ids: Iterable[int]) -> None:
        """Mark the checkpoints of accounts with ledger errors as suspect.

        The next verification reads all ledger entries of these accounts, and replaces a checkpoint
        if it finds no fault.
        """
        belongs_to_users = CreditCheckpoint.user_id.in_(list(user_ids))
        with self._resources.unit_of_work() as uow:
            uow.session.execute(
                update(CreditCheckpoint).where(belongs_to_users).values(is_suspect=True)
            )


def _order_message(change_id: int) -> bytes:
    return f"orders {change_id}".encode()
