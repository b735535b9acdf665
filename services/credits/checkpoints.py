"""Stores signed checkpoints, so that a verification of the ledger skips already verified entries.

Checkpoints are signed with the deployment's secret keys. An attacker who can write to the database,
but has no secret key, can't forge a checkpoint. A checkpoint is ignored if its signature is invalid
or if its signing key is missing. If an account has no valid checkpoint, a verification reads all
ledger entries of the account.
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
    """The state of a credit account after the ledger entry with the number ``seq``.

    Every ledger entry of the account up to the number ``seq`` has been verified without a fault.
    """

    user_id: int
    seq: int
    hash: bytes
    balance: Decimal
    debt: Decimal

    @property
    def message(self) -> bytes:
        """Return the text from which the signature of the checkpoint is computed."""
        sums = f"{self.balance:.4f} {self.debt:.4f}"
        return f"account {self.user_id} {self.seq} {self.hash.hex()} {sums}".encode()


class CheckpointBook:
    """Reads and writes the checkpoints of the ledger.

    Checkpoints are read with the connection that the verification uses, possibly from a replica of
    the database. Each write of checkpoints is a separate transaction on the primary database.
    """

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._signer = resources.keyring.signer("ledger-checkpoint")

    def unverified_users(self, connection: Connection) -> list[int]:
        """Return the ids of all users whose checkpoint has an invalid signature."""
        table = CreditCheckpoint.__table__.c
        user_ids = []
        for row in connection.execute(select(*table)):
            checkpoint = Checkpoint(row.user_id, row.seq, bytes(row.hash), row.balance, row.debt)
            if not self._signer.verify(checkpoint.message, row.signature):
                user_ids.append(row.user_id)
        return user_ids

    def last_verified_change(self, connection: Connection) -> int | None:
        """Return the id of the newest verified change of an order's status.

        All status changes with smaller ids than the returned id have been verified. Return ``None``
        if the orders have no valid checkpoint.
        """
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
            # Sort the checkpoint rows by user, so that two simultaneous verifications can't
            # deadlock.
            for checkpoint in sorted(checkpoints, key=lambda checkpoint: checkpoint.user_id)
        ]
        insertion = insert(CreditCheckpoint).values(rows)
        replacements = {name: insertion.excluded[name] for name in rows[0] if name != "user_id"}
        upsert = insertion.on_conflict_do_update(index_elements=["user_id"], set_=replacements)
        with self._resources.unit_of_work() as uow:
            uow.session.execute(upsert)

    def write_last_verified_change(self, change_id: int | None) -> None:
        """Store the id of the newest verified change of an order's status.

        If ``change_id`` is ``None``, delete the stored id, so that the next verification reads all
        orders.
        """
        with self._resources.unit_of_work() as uow:
            uow.session.execute(delete(PaymentOrderCheckpoint))
            if change_id is None:
                return
            signature = self._signer.sign(_order_message(change_id))
            row = insert(PaymentOrderCheckpoint).values(change_id=change_id, signature=signature)
            uow.session.execute(row.on_conflict_do_nothing())

    def mark_suspect(self, user_ids: Iterable[int]) -> None:
        """Mark checkpoints as suspect, because a verification has found faults in the accounts.

        The next verification ignores a suspect checkpoint, and reads all ledger entries of the
        account. A verification that finds no fault in an account replaces the account's suspect
        checkpoint with a new checkpoint.
        """
        belongs_to_users = CreditCheckpoint.user_id.in_(list(user_ids))
        with self._resources.unit_of_work() as uow:
            uow.session.execute(
                update(CreditCheckpoint).where(belongs_to_users).values(is_suspect=True)
            )


def _order_message(change_id: int) -> bytes:
    return f"orders {change_id}".encode()
