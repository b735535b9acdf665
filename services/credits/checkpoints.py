"""Signed checkpoints of the ledger, from which a verification resumes.

Each checkpoint is signed under the deployment's secret keys, so a person who can write to the
database can't create one. A forged checkpoint, or one whose key is gone, is ignored. A run then
reads more entries and still finds every fault. Restoring an old checkpoint has the same effect.
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
    """The state of an account after the entry ``seq``. No entry up to there had a fault."""

    user_id: int
    seq: int
    hash: bytes
    balance: Decimal
    debt: Decimal

    @property
    def message(self) -> bytes:
        """The signed text: the account, the number and hash of the entry, and the sums."""
        sums = f"{self.balance:.4f} {self.debt:.4f}"
        return f"account {self.user_id} {self.seq} {self.hash.hex()} {sums}".encode()


class CheckpointBook:
    """Reads checkpoints through any connection, and writes them in separate transactions."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._signer = resources.keyring.signer("ledger-checkpoint")

    def distrusted(self, reading: Connection) -> list[int]:
        """Return the users whose checkpoints have an invalid signature."""
        table = CreditCheckpoint.__table__.c
        user_ids = []
        for row in reading.execute(select(*table)):
            checkpoint = Checkpoint(row.user_id, row.seq, bytes(row.hash), row.balance, row.debt)
            if not self._signer.verify(checkpoint.message, row.signature):
                user_ids.append(row.user_id)
        return user_ids

    def last_change(self, reading: Connection) -> int | None:
        """Return the last change of an order's status up to which all orders were verified."""
        table = PaymentOrderCheckpoint.__table__.c
        rows = reading.execute(select(table.change_id, table.signature)).all()
        verified_ids = (id_ for id_, seal in rows if self._signer.verify(_order_message(id_), seal))
        return max(verified_ids, default=None)

    def write(self, checkpoints: Sequence[Checkpoint]) -> None:
        if not checkpoints:
            return
        rows = [
            asdict(each) | {"signature": self._signer.sign(each.message), "is_suspect": False}
            # The order is always the same, so that two simultaneous runs can't deadlock.
            for each in sorted(checkpoints, key=lambda each: each.user_id)
        ]
        written = insert(CreditCheckpoint).values(rows)
        changed = {name: written.excluded[name] for name in rows[0] if name != "user_id"}
        replaced = written.on_conflict_do_update(index_elements=["user_id"], set_=changed)
        with self._resources.unit_of_work() as uow:
            uow.session.execute(replaced)

    def write_last_change(self, change_id: int | None) -> None:
        """Store the last verified change. ``None`` makes the next runs read all orders."""
        with self._resources.unit_of_work() as uow:
            uow.session.execute(delete(PaymentOrderCheckpoint))
            if change_id is None:
                return
            signature = self._signer.sign(_order_message(change_id))
            row = insert(PaymentOrderCheckpoint).values(change_id=change_id, signature=signature)
            uow.session.execute(row.on_conflict_do_nothing())

    def suspect(self, user_ids: Iterable[int]) -> None:
        """Have each run read all entries of these accounts until one run finds no fault."""
        of_users = CreditCheckpoint.user_id.in_(list(user_ids))
        with self._resources.unit_of_work() as uow:
            uow.session.execute(update(CreditCheckpoint).where(of_users).values(is_suspect=True))


def _order_message(change_id: int) -> bytes:
    return f"orders {change_id}".encode()
