"""Applies one chunk of rows to a list: in one transaction, by set-based statements.

The rows are copied into a temporary table and judged there against people, subscriptions and
opt-outs. Then a few statements write the consequences for all rows at once. The list's lock
(``services.mailing.subscriptions.locks``) keeps every other act on the list out until the commit,
so that a verdict still holds when it is written. People are inserted in the order of their
addresses, so that two imports can't wait for each other.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from core.errors import TransientError
from core.settings import Settings
from core.settings.plan_quotas import PlanQuota
from models import MemberImport
from services.access import quotas
from services.mailing.imports.applying import staging, verdicts
from services.mailing.imports.applying.verdicts import (
    ADDED,
    ALREADY,
    LEFT,
    OPTED_OUT,
    OVER_QUOTA,
)
from services.mailing.imports.chunks import JudgedRow, decode, verdict_of
from services.mailing.subscriptions import locks
from storage.unit_of_work import UnitOfWork


@dataclass(frozen=True)
class AppliedChunk:
    """The result of one chunk.

    Attributes:
        counts: the number of rows by verdict; ``left`` rows count as opted out.
        updated: the number of members, active before, who got another name or tier.
        not_added: the CSV lines of all rows that were not added.
    """

    counts: Counter[str]
    updated: int
    not_added: bytes


@dataclass(frozen=True)
class PreparedChunk:
    """Rows of which all is prepared that needs no database."""

    rows: list[JudgedRow]
    lines: str


def prepare(encoded: bytes) -> PreparedChunk:
    """Decode a stored chunk, and write its lines for COPY."""
    rows = decode(encoded)
    return PreparedChunk(rows, staging.copy_lines(rows))


def apply(
    uow: UnitOfWork, settings: Settings, task: MemberImport, chunk: PreparedChunk
) -> AppliedChunk:
    """Add and update members as the rows say, as far as opt-outs and the owner's plan allow it."""
    locks.lock_list(uow, task.list_id)
    # Each row's verdict. Rows that change something are in the table `judged` too.
    found = [verdict_of(row) or ALREADY for row in chunk.rows]
    update = task.on_existing == "update"
    parameters: dict[str, Any] = {"list_id": task.list_id, "update": update}
    staging.copy_rows(uow, chunk.lines)
    parameters["has_opt_outs"] = _count(uow, _HAS_OPT_OUTS, parameters) > 0
    staging.copy_digests(uow, settings.keyring, chunk.rows, all_rows=parameters["has_opt_outs"])
    for verdict, numbers in uow.session.execute(text(_JUDGE), parameters):
        for number in numbers:
            found[number] = verdict
    updated = _count(uow, _COUNT_UPDATED) if update else 0
    if not (task.dry_run or task.by_operator):
        _hold_to_quota(uow, settings, task, found)
    counts = Counter(found)
    if not task.dry_run and (counts[ADDED] or counts[LEFT] or updated):
        _write(uow, task, counts)
    counts[OPTED_OUT] += counts.pop(LEFT, 0)
    width = len(verdicts.header_of(task))
    return AppliedChunk(counts, updated, verdicts.rejects_csv(chunk.rows, found, width))


def _hold_to_quota(
    uow: UnitOfWork, settings: Settings, task: MemberImport, found: list[str]
) -> None:
    """Change the verdicts of the rows that the owner's plan has no room for."""
    added = [number for number, verdict in enumerate(found) if verdict == ADDED]
    if not added:
        return
    # Once a row had no room, no later row is added, so that an import has one end.
    room = 0 if task.over_quota else quotas.hold(uow, settings, task.user_id, PlanQuota.MEMBERS)
    beyond = [] if room is None else added[max(room, 0) :]
    if beyond:
        _rows(uow, _PUT_OVER_QUOTA, {"first": beyond[0]})
    for number in beyond:
        found[number] = OVER_QUOTA


def _write(uow: UnitOfWork, task: MemberImport, counts: Counter[str]) -> None:
    parameters = {"list_id": task.list_id, "import_id": task.id, "user_id": task.user_id}
    known, wanted, changed = uow.session.execute(text(_COUNT_WRITES)).one()
    if known and _count(uow, _HOLD_KNOWN_PEOPLE) != known:
        # A person was erased after the lookup; the address may now belong to a different person.
        raise TransientError("a person was erased meanwhile")
    if wanted:
        _add_people(uow, wanted)
    if counts[LEFT]:
        _rows(uow, _KEEP_OPT_OUTS, parameters)
        _rows(uow, _LEAVE, parameters)
    if changed:
        _rows(uow, _KEEP_CHANGES, parameters)
        _rows(uow, _CHANGE, parameters)
    if counts[ADDED]:
        _rows(uow, _INSERT, parameters)


def _add_people(uow: UnitOfWork, wanted: int) -> None:
    try:
        # To look for a conflict before each row costs as much as half of the row.
        with uow.session.begin_nested():
            _rows(uow, _ADD_PEOPLE)
    except IntegrityError:
        # Another transaction made one of these people meanwhile, and may have erased them since.
        if _rows(uow, _ADD_MISSING_PEOPLE) != wanted and _rows(uow, _FIND_PEOPLE_AGAIN) != wanted:
            raise TransientError("a person was made meanwhile, and erased") from None


def _rows(uow: UnitOfWork, statement: str, parameters: dict[str, Any] | None = None) -> int:
    """The number of rows that the statement wrote."""
    result = uow.session.execute(text(statement), parameters)
    return int(result.rowcount)  # type: ignore[attr-defined]


def _count(uow: UnitOfWork, statement: str, parameters: dict[str, Any] | None = None) -> int:
    return uow.session.scalar(text(statement), parameters) or 0


_HAS_OPT_OUTS = (
    "SELECT count(*) FROM (SELECT 1 FROM opt_outs WHERE list_id = :list_id LIMIT 1) AS o"
)

# -- the verdicts, and what follows from them ----------------------------------------------------

# OFFSET 0 makes Postgres look up one row at a time. Its statistics know nothing of a list or an
# import that is growing now: it would expect one row, and choose a plan that reads the whole list
# for each row. Of people it would rather read all of them once than look up ten thousand, while
# they are some millions.
#
# Without a tier in the file the member's own tier stays; so does the name without a name.
_JUDGE = """
WITH said_no AS (
    SELECT s.number, o.kind FROM staged AS s
    CROSS JOIN LATERAL (SELECT id FROM users WHERE email = s.email OFFSET 0) AS u
    CROSS JOIN LATERAL (
        SELECT kind FROM opt_outs WHERE list_id = :list_id AND user_id = u.id OFFSET 0
    ) AS o
    WHERE :has_opt_outs
    UNION
    SELECT d.number, o.kind FROM staged_digests AS d
    CROSS JOIN LATERAL (
        SELECT kind FROM opt_outs WHERE list_id = :list_id AND address_hmac = d.digest OFFSET 0
    ) AS o
), known AS (
    SELECT s.*, u.id AS user_id, m.id AS subscription_id,
        coalesce(m.status = 'active', false) AS is_active,
        :update AND NOT s.has_left AND coalesce(m.status = 'active', false) AND (
            (s.name <> '' AND s.name IS DISTINCT FROM m.name)
            OR (s.tier IS NOT NULL
                AND (s.tier <> m.type OR s.paid_expiry IS DISTINCT FROM m.paid_expiry))
        ) AS is_updated
    FROM staged AS s
    LEFT JOIN LATERAL (SELECT id FROM users WHERE email = s.email OFFSET 0) AS u ON true
    LEFT JOIN LATERAL (
        SELECT id, status, name, type, paid_expiry FROM subscriptions
        WHERE list_id = :list_id AND user_id = u.id OFFSET 0
    ) AS m ON true
), kept AS (
    INSERT INTO judged
    SELECT k.number, k.email, k.name, k.tier, k.paid_expiry, coalesce(k.user_id, k.fresh_id),
        k.user_id IS NULL, k.subscription_id,
        CASE WHEN k.has_left THEN 'left'
            WHEN k.is_active THEN 'already'
            WHEN no_list.number IS NOT NULL THEN 'opted_out'
            ELSE 'added' END,
        no_mail.number IS NULL, k.is_updated
    FROM known AS k
    LEFT JOIN said_no AS no_list ON no_list.number = k.number AND no_list.kind = 'list'
    LEFT JOIN said_no AS no_mail ON no_mail.number = k.number AND no_mail.kind = 'email'
    -- Active members who stay as they are need no row.
    WHERE k.has_left OR k.is_updated OR NOT k.is_active
    RETURNING number, verdict
)
SELECT verdict, array_agg(number) FROM kept GROUP BY verdict
"""

_PUT_OVER_QUOTA = """
UPDATE judged SET verdict = 'over_quota' WHERE verdict = 'added' AND number >= :first
"""
_COUNT_UPDATED = "SELECT count(*) FROM judged WHERE is_updated"

# People about whom rows are written, known and new, and records that change.
_COUNT_WRITES = """
SELECT count(*) FILTER (WHERE NOT is_new_person), count(*) FILTER (WHERE is_new_person),
    count(*) FILTER (WHERE subscription_id IS NOT NULL AND verdict <> 'left')
FROM judged WHERE verdict IN ('added', 'left') OR is_updated
"""
# These locks keep an erasure from coming between.
_HOLD_KNOWN_PEOPLE = """
SELECT count(*) FROM (
    SELECT user_id, email FROM judged
    WHERE NOT is_new_person AND (verdict IN ('added', 'left') OR is_updated) ORDER BY user_id
) AS j CROSS JOIN LATERAL (
    SELECT FROM users WHERE id = j.user_id AND email = j.email FOR KEY SHARE OFFSET 0
) AS held
"""
_NEW_PEOPLE = "is_new_person AND verdict IN ('added', 'left')"
_ADD_PEOPLE = f"""
INSERT INTO users (id, email)
SELECT user_id, email FROM judged WHERE {_NEW_PEOPLE} ORDER BY email
"""  # noqa: S608
# The id may conflict too: with millions of people, one of a million new ids may be taken.
_ADD_MISSING_PEOPLE = f"{_ADD_PEOPLE} ON CONFLICT DO NOTHING"
_FIND_PEOPLE_AGAIN = f"""
WITH found AS (
    SELECT u.id, u.email FROM judged AS j JOIN users AS u ON u.email = j.email
    WHERE {_NEW_PEOPLE} ORDER BY u.id FOR KEY SHARE OF u
)
UPDATE judged SET user_id = found.id FROM found
WHERE judged.is_new_person AND judged.email = found.email
"""  # noqa: S608

_KEEP_OPT_OUTS = """
INSERT INTO opt_outs (list_id, user_id, address_hmac, kind, source)
SELECT :list_id, j.user_id, d.digest, 'list', 'import'
FROM judged AS j JOIN staged_digests AS d ON d.number = j.number AND d.is_current
WHERE j.verdict = 'left' ORDER BY j.user_id
ON CONFLICT DO NOTHING
"""
_LEAVE = """
WITH leaving AS (
    SELECT m.place, m.status FROM judged AS j CROSS JOIN LATERAL (
        SELECT ctid AS place, status FROM subscriptions WHERE id = j.subscription_id OFFSET 0
    ) AS m
    WHERE j.verdict = 'left' AND m.status IN ('active', 'pending')
), gone AS (
    UPDATE subscriptions AS m SET status = 'unsubscribed', updated_at = clock_timestamp()
    FROM leaving WHERE m.ctid = leaving.place
    RETURNING m.list_id, m.user_id, leaving.status AS was, m.email_enabled
)
INSERT INTO subscription_events (list_id, user_id, action, actor, actor_id, via, status_before,
    status_after, email_enabled_before, email_enabled_after)
SELECT list_id, user_id, 'unsubscribed', 'import', :user_id, 'import', was, 'unsubscribed',
    email_enabled, email_enabled
FROM gone
"""

# The earlier and the new values of records that existed before are kept for an undo.
_KEEP_CHANGES = """
INSERT INTO import_changes (import_id, subscription_id, activated, applied_at, status_before,
    name_before, name_after, type_before, type_after, paid_expiry_before, paid_expiry_after,
    import_id_before, imported_at_before, updated_at_before)
SELECT :import_id, m.id, j.verdict = 'added', now(), m.status,
    m.name, coalesce(nullif(j.name, ''), m.name),
    m.type, coalesce(j.tier, m.type),
    m.paid_expiry, CASE WHEN j.tier IS NULL THEN m.paid_expiry ELSE j.paid_expiry END,
    m.import_id, m.imported_at, m.updated_at
FROM judged AS j CROSS JOIN LATERAL (
    SELECT * FROM subscriptions WHERE id = j.subscription_id OFFSET 0
) AS m
WHERE j.verdict = 'added' OR j.is_updated
"""
_CHANGE = """
WITH changed AS (
    UPDATE subscriptions AS m SET
        status = 'active',
        email_enabled = m.email_enabled AND j.wants_mail,
        name = c.name_after, type = c.type_after, paid_expiry = c.paid_expiry_after,
        import_id = CASE WHEN c.activated THEN c.import_id ELSE m.import_id END,
        imported_at = CASE WHEN c.activated THEN c.applied_at ELSE m.imported_at END,
        updated_at = c.applied_at
    FROM judged AS j CROSS JOIN LATERAL (
        SELECT * FROM import_changes
        WHERE import_id = :import_id AND subscription_id = j.subscription_id OFFSET 0
    ) AS c CROSS JOIN LATERAL (
        SELECT ctid AS place FROM subscriptions WHERE id = j.subscription_id OFFSET 0
    ) AS found
    WHERE m.ctid = found.place
    RETURNING m.list_id, m.user_id, c.activated, c.status_before, m.email_enabled
)
INSERT INTO subscription_events (list_id, user_id, action, actor, actor_id, via, status_before,
    status_after, email_enabled_before, email_enabled_after)
SELECT list_id, user_id, CASE WHEN activated THEN 'imported' ELSE 'edited' END, 'import', :user_id,
    'import', status_before, 'active', email_enabled, email_enabled
FROM changed
"""
_INSERT = """
INSERT INTO subscriptions (list_id, user_id, status, type, paid_expiry, email_enabled, name, email,
    source, import_id, imported_at, created_at, updated_at)
SELECT :list_id, user_id, 'active', coalesce(tier, 'free'),
    CASE WHEN tier IS NOT NULL THEN paid_expiry END, wants_mail,
    nullif(name, ''), email, 'import', :import_id, now(), now(), now()
FROM judged WHERE verdict = 'added' AND subscription_id IS NULL ORDER BY number
"""
