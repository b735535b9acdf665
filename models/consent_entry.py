"""Records of consent, either observed by Pressroom or claimed by an imported file.

The application's database role may only add and read records of consent. Only SECURITY DEFINER
functions may truncate IP addresses or delete consent records, for example after an erasure. The
consent tables aren't partitioned by time, because consent records aren't deleted by age.
"""

from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from core.ids import PersonId
from models.declarative import CreatedAt, Model, SerialId, allow_values

# The maximum size of an origin's JSON text. An origin says where a sign-up came from. Every valid
# origin is below this limit, because an origin contains at most five values of 100 characters, a
# path of 300 characters, and a host of 253 ASCII characters.
MAX_ORIGIN_BYTES = 4_000

# The SQL condition that a row contains a whole IP address, not a network. Networks are written in
# CIDR notation, with a slash.
_WHOLE_IP = "strpos(ip, '/') = 0"


class ConsentHow(StrEnum):
    # Somebody entered the e-mail address in a sign-up form.
    FORM = "form"
    # The person confirmed the subscription with a mailed token.
    CONFIRMATION = "confirmation"
    # The person subscribed with the credentials of a Pressroom account.
    LOGIN = "login"
    # The person subscribed again through a link in the list's mail.
    LINK = "link"
    # The owner of the list added the person to the list.
    OWNER = "owner"
    IMPORT = "import"
    # The owner moved the person from one list to another list.
    TRANSFER = "transfer"


class ConsentEntry(Model):
    """The subscription of an imported member has an ``import_id``, but no consent entry."""

    __tablename__ = "consent_entries"
    __table_args__ = (
        allow_values("how", ConsentHow),
        CheckConstraint("char_length(ip) <= 50", name="ip_bounded"),
        CheckConstraint("char_length(url) <= 2048", name="url_bounded"),
        CheckConstraint("char_length(browser) <= 100", name="browser_bounded"),
        CheckConstraint(f"octet_length(origin::text) <= {MAX_ORIGIN_BYTES}", name="origin_bounded"),
        # ``user_id`` is the first column of the index, so that an erasure can find the entries of a
        # person.
        Index("ix_consent_entries_user_id_list_id_id", "user_id", "list_id", "id"),
        Index("ix_consent_entries_whole_ip", "occurred_at", postgresql_where=_WHOLE_IP),
        # An index for counting how many people joined a list from the same network.
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
    # ``user_id`` needs no foreign key, because the erasure of a person deletes the person's
    # entries.
    user_id: Mapped[PersonId]
    how: Mapped[str]
    occurred_at: Mapped[CreatedAt]
    # The IP address of the client, which is shortened to its network after 90 days.
    ip: Mapped[str | None]
    # The URL of the page with the sign-up form, without the query string.
    url: Mapped[str | None]
    browser: Mapped[str | None]
    # The version of the list's consent wording at the time of consent, or NULL if an owner added
    # the person.
    wording_version: Mapped[int | None]
    # The list to which the person originally consented. `of_list_id` is NULL unless a transfer
    # copied the entry from another list.
    of_list_id: Mapped[int | None]
    # The import that added the person to the source list of a transfer. `import_id` is NULL unless
    # a transfer copied the entry.
    import_id: Mapped[int | None]
    # Where the sign-up came from, as a JSON object with keys such as `utm_source` and `referrer`.
    # NULL if the origin is unknown.
    origin: Mapped[dict[str, Any] | None]
    # The text of the question about opens and clicks if the person said yes to it, or else NULL.
    engagement_wording: Mapped[str | None]


class ConsentClaim(Model):
    """A member's consent outside Pressroom, as claimed by an imported file.

    Undoing an import deletes the consent claims from the import's file.
    """

    __tablename__ = "consent_claims"
    __table_args__ = (
        allow_values("how", ConsentHow),
        CheckConstraint("char_length(ip) <= 50", name="ip_bounded"),
        CheckConstraint("char_length(url) <= 2048", name="url_bounded"),
        CheckConstraint("char_length(wording) <= 2000", name="wording_bounded"),
        CheckConstraint("char_length(claimed_by) BETWEEN 1 AND 100", name="claimed_by_bounded"),
        CheckConstraint(f"octet_length(origin::text) <= {MAX_ORIGIN_BYTES}", name="origin_bounded"),
        Index("ix_consent_claims_subscription_id", "subscription_id"),
        Index("ix_consent_claims_whole_ip", "occurred_at", postgresql_where=_WHOLE_IP),
    )

    # ``consent_claims`` has no foreign keys, because they would double the time for storing a
    # million claims. A consent claim can outlive its import.
    import_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    subscription_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    how: Mapped[str] = mapped_column(primary_key=True)
    # When the person consented according to the file, or the time of the import if the file doesn't
    # say when.
    occurred_at: Mapped[datetime]
    ip: Mapped[str | None]
    url: Mapped[str | None]
    wording: Mapped[str | None]
    # The product that created the imported file, or `file` if the product is unknown.
    claimed_by: Mapped[str]
    # The list into which the file was imported. `of_list_id` is NULL unless a transfer copied the
    # claim to another list.
    of_list_id: Mapped[int | None]
    # Where the sign-up came from according to the imported file, in the same JSON format as in
    # `consent_entries.origin`.
    origin: Mapped[dict[str, Any] | None]


class ConsentWording(Model):
    __tablename__ = "consent_wordings"
    __table_args__ = (CheckConstraint("char_length(wording) <= 2000", name="wording_bounded"),)

    list_id: Mapped[int] = mapped_column(
        ForeignKey("lists.id"), primary_key=True, autoincrement=False
    )
    version: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    wording: Mapped[str]
    created_at: Mapped[CreatedAt]
