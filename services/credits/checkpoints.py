"""Signed checkpoints of the ledger, from which a verification resumes."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal

from sqlalchemy import Connection, delete, select, update
from sqlalchemy.dialects.postgresql import insert

from models import CreditCheckpoint, PaymentOrderCheckpoint
from storage.resources import Resources


@dataclass(frozen=True)
class Checkpoint:
    """An account after the entry ``seq``, up to which it had no fault."""

    user_id: int
    seq: int
    hash: bytes
    balance: Decimal
    debt: Decimal

    @property
    def message(self) -> bytes:
        """The account, the entry's number and hash, and the sums."""
        sums = f"{self.balance:.4f} {self.debt:.4f}"
        return f"account {self.user_id} {self.seq} {self.hash.hex()} {sums}".encode()


class CheckpointBook:
    """Reads checkpoints by any connection, and writes them in transactions of its own."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._signer = resources.keyring.signer("ledger-checkpoint")

    def distrusted(self, reading: Connection) -> list[int]:
        """The users whose checkpoints don't count."""
        table = CreditCheckpoint.__table__.c
        found = []
        for row in reading.execute(select(*table)):
            told = Checkpoint(row.user_id, row.seq, bytes(row.hash), row.balance, row.debt)
            if not self._signer.verify(told.message, row.signature):
                found.append(row.user_id)
        return found

    def last_change(self, reading: Connection) -> int | None:
        """The change of an order's status up to which all orders were verified, if one was."""
        table = PaymentOrderCheckpoint.__table__.c
        rows = reading.execute(select(table.change_id, table.signature)).all()
        ours = (id_ for id_, seal in rows if self._signer.verify(_order_message(id_), seal))
        return max(ours, default=None)

    def write(self, checkpoints: Sequence[Checkpoint]) -> None:
        if not checkpoints:
            return
        rows = [
            asdict(each) | {"signature": self._signer.sign(each.message), "is_suspect": False}
            # In one order, so that two runs at once don't lock each other out.
            for each in sorted(checkpoints, key=lambda each: each.user_id)
        ]
        written = insert(CreditCheckpoint).values(rows)
        changed = {name: written.excluded[name] for name in rows[0] if name != "user_id"}
        replaced = written.on_conflict_do_update(index_elements=["user_id"], set_=changed)
        with self._resources.unit_of_work() as uow:
            uow.session.execute(replaced)

    def write_last_change(self, change_id: int | None) -> None:
        """With ``None`` the next runs look at all orders."""
        with self._resources.unit_of_work() as uow:
            uow.session.execute(delete(PaymentOrderCheckpoint))
            if change_id is None:
                return
            signature = self._signer.sign(_order_message(change_id))
            row = insert(PaymentOrderCheckpoint).values(change_id=change_id, signature=signature)
            uow.session.execute(row.on_conflict_do_nothing())

    def suspect(self, user_ids: Iterable[int]) -> None:
        """Let these accounts be read whole each time, until one such run finds no fault."""
        of_users = CreditCheckpoint.user_id.in_(list(user_ids))
        with self._resources.unit_of_work() as uow:
            uow.session.execute(update(CreditCheckpoint).where(of_users).values(is_suspect=True))


def _order_message(change_id: int) -> bytes:
    return f"orders {change_id}".encode()
