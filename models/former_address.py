from datetime import datetime

from sqlalchemy import ForeignKey, func
from sqlalchemy.orm import Mapped, mapped_column

from models.declarative import Model


class FormerAddress(Model):
    """An address that a person had, and by which lists may still know them.

    Files name the person by it, and opt-outs are kept under it too. Several people may have had the
    same one, and somebody may have it now: then it is that person's.
    """

    __tablename__ = "former_addresses"

    email: Mapped[str] = mapped_column(primary_key=True)
    user_id: Mapped[int] = mapped_column(
        ForeignKey("users.id", ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
        index=True,
    )
    left_at: Mapped[datetime] = mapped_column(server_default=func.now())
