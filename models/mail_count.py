from datetime import datetime

from sqlalchemy.orm import Mapped, mapped_column

from models.declarative import Model


class MailCount(Model):
    """How many mails strangers had sent in a window of time, by what the digest stands for.

    It tells nothing about people: the digest is an HMAC, and the length of the window in seconds.
    """

    __tablename__ = "mail_counts"

    digest: Mapped[bytes] = mapped_column(primary_key=True)
    mails: Mapped[int]
    # The first mail after that begins another window.
    ends_at: Mapped[datetime] = mapped_column(index=True)
