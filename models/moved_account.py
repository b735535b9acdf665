from datetime import datetime

from sqlalchemy import ForeignKey, func
from sqlalchemy.orm import Mapped, mapped_column

from models.declarative import Model


class MovedAccount(Model):
    """An account that moved to another address, which rosters use from then on.

    The lists' own records keep the address that their owners know.
    """

    __tablename__ = "moved_accounts"

    user_id: Mapped[int] = mapped_column(
        ForeignKey("users.id", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    moved_at: Mapped[datetime] = mapped_column(server_default=func.now())
