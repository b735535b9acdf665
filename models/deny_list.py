from sqlalchemy import ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from models.declarative import Model


class DeniedEntry(Model):
    """An address or a domain of which an owner wants no new member, on any of their lists.

    An entry with an ``@`` is an address; ``*.example.com`` stands for all subdomains.
    """

    __tablename__ = "denied_entries"
    # For the erasure of a person, whose address no owner keeps.
    __table_args__ = (Index("ix_denied_entries_entry", "entry"),)

    user_id: Mapped[int] = mapped_column(
        ForeignKey("users.id", ondelete="CASCADE"), primary_key=True
    )
    entry: Mapped[str] = mapped_column(primary_key=True)
