from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from models.declarative import CreatedAt, Model


class Erasure(Model):
    """The erasure of one person: how far its job has come, and what it did.

    The row stays, as a proof. Once the erasure has ended it holds ids, counts and times alone.
    """

    __tablename__ = "erasures"
    __table_args__ = (
        CheckConstraint("octet_length(address_hmac) = 32", name="hmac_length"),
        Index(
            "ix_erasures_address_hmac",
            "address_hmac",
            postgresql_where="address_hmac IS NOT NULL",
        ),
    )

    user_id: Mapped[int] = mapped_column(
        ForeignKey("users.id"), primary_key=True, autoincrement=False
    )
    # Without a foreign key: the job is purged some time after its end.
    job_id: Mapped[int]
    # By which an erasure that has not ended is found again. NULL once it has ended.
    address_hmac: Mapped[bytes | None]
    # Which stage is next (`services.erasure.stages`), and where in its table it goes on. NULL: the
    # first one, and at the beginning.
    stage: Mapped[str | None]
    bookmark: Mapped[int | None]
    # The number of rows that each stage has erased so far.
    counts: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'"))
    created_at: Mapped[CreatedAt]
    finished_at: Mapped[datetime | None]
