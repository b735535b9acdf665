"""Tables whose old rows are dropped by the partition have ranges of ids for partitions.

Ids rise with time. A partition has room for more ids than will be given while it is the current
one: after a while the ids go on in the next, so one holds the rows of some days.
"""

from datetime import datetime

from sqlalchemy import UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from models.declarative import CreatedAt, Model


class Partition(Model):
    """One partition: a table with this name, of the rows whose ids are in its range.

    The functions of the owner's role that make, turn and drop partitions write these rows.
    """

    __tablename__ = "partitions"
    __table_args__ = (UniqueConstraint("parent", "from_id"),)

    name: Mapped[str] = mapped_column(primary_key=True)
    parent: Mapped[str]
    from_id: Mapped[int]
    to_id: Mapped[int]  # the first id that is not in it
    made_at: Mapped[CreatedAt]
    # Since when ids are those of a later one. Every row's id is older than this.
    closed_at: Mapped[datetime | None]
