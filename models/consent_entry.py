"""Proofs that people agreed to get a list: what Pressroom saw itself, and what others claim.

No table here has partitions: rows are kept for as long as what they show, so none goes by its age.
The application's role may add rows and read them. Functions of the owner's shorten old IP
addresses, delete what is about erased people, and take back the claims of an import that is undone.
"""

from datetime import datetime
from enum import StrEnum

from sqlalchemy import CheckConstraint, ForeignKey, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from models.declarative import CreatedAt, Model, SerialId, known


class ConsentHow(StrEnum):
    FORM = "form"  # a stranger named the address, with or without a challenge
    CONFIRMATION = "confirmation"  # the person confirmed a mailed token
    LOGIN = "login"  # the person, with a credential of theirs
    LINK = "link"  # the person came back by a link in the list's mail
    OWNER = "owner"  # the owner of the list added the person
    IMPORT = "import"
    TRANSFER = "transfer"  # the owner moved the person from another list


# A whole address and not its network.
_WHOLE_IP = "strpos(ip, '/') = 0"


class ConsentEntry(Model):
    """An act by which a person came onto a list.

    Members who came by an import have none of it: the import's row and their ``import_id`` say so.
    """

    __tablename__ = "consent_entries"
    __table_args__ = (
        known("how", ConsentHow),
        CheckConstraint("char_length(ip) <= 50", name="ip_bounded"),
        CheckConstraint("char_length(url) <= 2048", name="url_bounded"),
        CheckConstraint("char_length(browser) <= 100", name="browser_bounded"),
        # The person comes first, for their erasure.
        Index("ix_consent_entries_user_id_list_id_id", "user_id", "list_id", "id"),
        Index("ix_consent_entries_whole_ip", "occurred_at", postgresql_where=_WHOLE_IP),
        # How many people came onto a list from one network.
        Index(
            "ix_consent_entries_network",
            "list_id",
            text("network_of_ip(ip)"),
            "user_id",
            postgresql_where="ip IS NOT NULL",
        ),
    )

    id: Mapped[SerialId]
    list_id: Mapped[int] = mapped_column(ForeignKey("lists.id"))
    # No foreign key: a person of whom nothing else is left is purged, and this goes with them.
    user_id: Mapped[int]
    how: Mapped[str]
    occurred_at: Mapped[CreatedAt]
    # From where, and by what; after 90 days the network of the address alone.
    ip: Mapped[str | None]
    # The page with the form, without its query.
    url: Mapped[str | None]
    browser: Mapped[str | None]
    # The list's consent wording at that time; none for an act of the owner's.
    wording_version: Mapped[int | None]
    # The list to which the person agreed, where the entry came here by a transfer.
    of_list_id: Mapped[int | None]
    # The import by which a person came to that list.
    import_id: Mapped[int | None]


class ConsentClaim(Model):
    """The claim of an imported file that a member agreed elsewhere. An undo takes it back."""

    __tablename__ = "consent_claims"
    __table_args__ = (
        known("how", ConsentHow),
        CheckConstraint("char_length(ip) <= 50", name="ip_bounded"),
        CheckConstraint("char_length(url) <= 2048", name="url_bounded"),
        CheckConstraint("char_length(wording) <= 2000", name="wording_bounded"),
        CheckConstraint("char_length(claimed_by) BETWEEN 1 AND 100", name="claimed_by_bounded"),
        Index("ix_consent_claims_subscription_id", "subscription_id"),
        Index("ix_consent_claims_whole_ip", "occurred_at", postgresql_where=_WHOLE_IP),
    )

    # No foreign keys: they would cost an import of a million claims as much as the claims. A claim
    # stays when the row of its import is purged.
    import_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    subscription_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    how: Mapped[str] = mapped_column(primary_key=True)
    # As the file has it; the moment of the import where the file has none.
    occurred_at: Mapped[datetime]
    ip: Mapped[str | None]
    url: Mapped[str | None]
    wording: Mapped[str | None]
    # The product whose file it is, or `file`.
    claimed_by: Mapped[str]
    # The list into which it was imported, where the claim came here by a transfer.
    of_list_id: Mapped[int | None]


class ConsentWording(Model):
    """A version of the text to which people agree who subscribe to a list."""

    __tablename__ = "consent_wordings"
    __table_args__ = (CheckConstraint("char_length(wording) <= 2000", name="wording_bounded"),)

    list_id: Mapped[int] = mapped_column(
        ForeignKey("lists.id"), primary_key=True, autoincrement=False
    )
    version: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    wording: Mapped[str]
    created_at: Mapped[CreatedAt]
