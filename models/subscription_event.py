from sqlalchemy import ForeignKey, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from models.declarative import CreatedAt, Model, SerialId


class SubscriptionEvent(Model):
    """One change of one subscription: what, when, by which actor and from where.

    A row is never changed, but for its IP address: after 90 days its network alone stays, and of a
    person who is erased nothing.
    """

    __tablename__ = "subscription_events"
    __table_args__ = (
        Index("ix_subscription_events_member", "list_id", "user_id", text("id DESC")),
        # For the erasure of a person, which goes through what is about them and what they did. Most
        # rows that name an actor are those of imports and undos, which come from no address.
        Index("ix_subscription_events_user_id_id", "user_id", "id"),
        Index(
            "ix_subscription_events_actor_id_id",
            "actor_id",
            "id",
            postgresql_where="actor_id IS NOT NULL AND (ip IS NOT NULL OR request_id IS NOT NULL)",
        ),
        {"postgresql_partition_by": "RANGE (id)"},
    )

    id: Mapped[SerialId]
    list_id: Mapped[int] = mapped_column(ForeignKey("lists.id"))
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"))
    # What happened, such as `unsubscribed`, and the actor: user, owner, operator, import, stranger.
    action: Mapped[str]
    actor: Mapped[str]
    actor_id: Mapped[int | None]
    # How it came: login, trace, one-click, page, confirmation, challenge, form, import, command.
    via: Mapped[str]
    status_before: Mapped[str | None]
    status_after: Mapped[str | None]
    email_enabled_before: Mapped[bool | None]
    email_enabled_after: Mapped[bool | None]
    # What of the record changed beside them, by names such as `name`, `tags` or `fields.city`.
    changed: Mapped[list[str] | None]
    # Why the person left or stopped the mail, if they said: a word of ours, never one of theirs.
    reason: Mapped[str | None]
    ip: Mapped[str | None]
    request_id: Mapped[str | None]
    created_at: Mapped[CreatedAt]
