"""Returns the roster rows of a few members, so that a program can mail them at once.

Deliveries with one label on one day in UTC belong to one mailing of the list. The rows are built
like the rows of an exported roster. A repeated request returns the same delivery ids.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from sqlalchemy import ColumnElement, func, literal_column, select, text
from sqlalchemy.dialects.postgresql import insert

from models import Mailing, MailingList, Subscription
from services.access.caller import Caller
from services.jobs import idempotency
from services.jobs.idempotency import IdempotencyKey
from services.security_events import EventType, record_event
from services.subscriptions import export_sheets, exports
from services.subscriptions.export_sheets import Sheet, Values
from services.subscriptions.members.traces import allocate_delivery_number
from storage.array_texts import format_numbers
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

MAX_MEMBERS_PER_REQUEST = 100
_MAILING_ID = "mailing_id"
# This SQL expression must equal the expression in the index ``ix_mailings_deliveries``.
_DAY: ColumnElement[date] = literal_column("((mailings.created_at AT TIME ZONE 'UTC')::date)")
_TODAY: ColumnElement[date] = literal_column("(now() AT TIME ZONE 'UTC')::date")
# Marks members as counted, and returns the newly marked members. The order of the user ids prevents
# deadlocks between simultaneous requests.
_MARK_MEMBERS = text("""
INSERT INTO mailing_marks (user_id, list_id, mailing_id, kind)
SELECT user_id, :list_id, :mailing_id, 'rows'
FROM unnest(CAST(:user_ids AS bigint[])) AS user_id ORDER BY user_id
ON CONFLICT DO NOTHING
RETURNING user_id
""")
_COUNT_MEMBERS = text("""
UPDATE mailings SET rows = rows + :rows, measured = measured + :measured WHERE id = :mailing_id
""")


@dataclass(frozen=True)
class Deliveries:
    """The members of a request who get mail now.

    Attributes:
        members: the rows of these members, as in a roster.
        left_out: the number of requested members without a row.
        is_replayed: whether an earlier request with the same idempotency key began the mailing.
    """

    mailing_id: int
    members: list[dict[str, Any]]
    left_out: int
    is_replayed: bool


def create_deliveries(
    resources: Resources,
    caller: Caller,
    list_id: int,
    *,
    user_ids: Collection[int],
    label: str,
    key: IdempotencyKey | None,
) -> Deliveries:
    """Read the rows of the members who get mail now, and count these members in the mailing.

    A repeated request reads the rows again, because members may have left since.
    """

    def create() -> Deliveries:
        with resources.unit_of_work() as uow:
            mailing_list = exports.get_list_to_mail(uow, caller, list_id)
            answer = idempotency.find_answer(uow, key)
            if answer is not None:
                # The earlier request may have begun the mailing before midnight.
                mailing = uow.session.get_one(Mailing, answer[_MAILING_ID])
            else:
                mailing = _open_mailing(uow, caller, mailing_list, label)
                idempotency.store_answer(uow, key, {_MAILING_ID: mailing.id})
            sheet = export_sheets.build_roster(
                resources,
                mailing_list,
                Subscription.user_id.in_(sorted(set(user_ids))),
                mailing_id=mailing.id,
                begun_at=mailing.created_at,
                is_limited=bool(caller.list_ids),
            )
            rows = _read_rows(uow, sheet)
            _count_members(uow, mailing, sheet, rows)
            return Deliveries(
                mailing.id,
                [dict(zip(sheet.columns, row, strict=True)) for row in rows],
                left_out=len(set(user_ids)) - len(rows),
                is_replayed=answer is not None,
            )

    return idempotency.repeat_after_equal_request(create)


def _open_mailing(
    uow: UnitOfWork, caller: Caller, mailing_list: MailingList, label: str
) -> Mailing:
    """Return today's mailing for the label, and create it if necessary."""
    is_wanted = (
        Mailing.list_id == mailing_list.id,
        Mailing.requested_label == label,
        _DAY == _TODAY,
    )
    find_mailing = select(Mailing).where(*is_wanted)
    mailing = uow.session.scalar(find_mailing)
    if mailing is not None:
        return mailing
    # The INSERT waits for a simultaneous request that creates the same mailing.
    values = {"list_id": mailing_list.id, "label": label, "requested_label": label}
    create_mailing = (
        insert(Mailing)
        .values(
            id=allocate_delivery_number(uow), **values, created_at=func.now(), rows=0, measured=0
        )
        .on_conflict_do_nothing(
            index_elements=[Mailing.list_id, Mailing.requested_label, _DAY],
            index_where=Mailing.requested_label.is_not(None),
        )
        .returning(Mailing.id)
    )
    mailing_id = uow.session.scalar(create_mailing)
    if mailing_id is not None:
        record_event(
            uow,
            caller.account_id,
            EventType.EXPORT_CREATED,
            mailing_id=mailing_id,
            list_id=mailing_list.id,
            kind="deliveries",
        )
    return uow.session.scalars(find_mailing).one()


def _read_rows(uow: UnitOfWork, sheet: Sheet) -> list[Values]:
    """Read the primary database, because a replica may not know the latest opt-outs yet."""
    connection = uow.session.connection()
    return list(sheet.convert_rows(connection, connection.execute(sheet.query).all()))


def _count_members(uow: UnitOfWork, mailing: Mailing, sheet: Sheet, rows: Sequence[Values]) -> None:
    """Count the members in the mailing, unless an earlier request counted them."""
    place = sheet.columns.index("user_id")
    values = {
        "list_id": mailing.list_id,
        "mailing_id": mailing.id,
        "user_ids": format_numbers(row[place] for row in rows),
    }
    new_ids = set(uow.session.scalars(_MARK_MEMBERS, values))
    if new_ids:
        new_rows = [row for row in rows if row[place] in new_ids]
        counts = {
            "rows": len(new_rows),
            "measured": export_sheets.count_measured(sheet, new_rows),
            "mailing_id": mailing.id,
        }
        # The row of the mailing stays locked until the commit, so update it last.
        uow.session.execute(_COUNT_MEMBERS, counts)
