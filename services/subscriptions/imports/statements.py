"""The statements that judge a chunk's rows against people, subscriptions and opt-outs."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime

import orjson
from sqlalchemy import text

from core.errors import DomainError
from models import ConsentHow, MemberImport
from services.subscriptions import consent, tags
from services.subscriptions.consent import ConsentClaimed
from services.subscriptions.imports import staging
from services.subscriptions.imports.endings import JudgedRow
from services.subscriptions.imports.rows import LeftOut, RowExtras
from services.subscriptions.imports.staging import (
    ADDED,
    ALREADY,
    JUDGED,
    STAGED,
    STAGED_DIGESTS,
    STAGED_EXTRAS,
)
from services.subscriptions.tags import MAX_TAGS_OF_MEMBER
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

# In the order of an index: where most opt-outs are of one list, Postgres would look for one of this
# list in the whole table.
HAS_OPT_OUTS = """
SELECT count(*) FROM (
    SELECT 1 FROM opt_outs WHERE list_id = :list_id ORDER BY user_id LIMIT 1
) AS o
"""


def _new_expiry(row: str) -> str:
    """Return the SQL expression for the new end of member ``m``'s paid tier after an import."""
    return f"""CASE WHEN coalesce({row}.tier, m.type) = 'free' THEN NULL
        WHEN {row}.paid_expiry IS NOT NULL OR {row}.clears_expiry THEN {row}.paid_expiry
        WHEN {row}.tier IS NULL OR m.paid_expiry > now() THEN m.paid_expiry END"""


def _gets_other_values(row: str, *, has_extras: bool) -> str:
    """Return the condition that the row changes something of the active member ``m``.

    Members get what they lack. The import changes what they have only if it updates.
    """
    extras = """OR e.number IS NOT NULL AND (
                CASE WHEN :update THEN m.fields || e.fields ELSE e.fields || m.fields END
                    <> m.fields
                OR NOT m.tag_ids @> e.tag_ids
                OR m.joined_at IS NULL AND e.joined_at IS NOT NULL
            )"""
    return f"""(
            :update AND {row}.name <> ''
                AND normalize({row}.name) IS DISTINCT FROM normalize(m.name)
            OR :update AND {row}.tier IS DISTINCT FROM m.type AND {row}.tier IS NOT NULL
            OR :update AND {_new_expiry(row)} IS DISTINCT FROM m.paid_expiry
            {extras if has_extras else ""}
        )"""


# OFFSET 0 makes Postgres look up one row at a time. Its statistics know nothing of a list or an
# import that is growing now: it would expect one row, and choose a plan that reads the whole list
# for each row. People it would read all at once, while they are some millions.
#
# Without a tier in the file the member's own tier stays; so does the name without a name.
def _judge(*, has_extras: bool) -> str:
    return f"""
WITH known AS (
    SELECT s.*, p.id AS user_id, m.id AS subscription_id,
        coalesce(m.status = 'active', false) AS is_active,
        EXISTS (SELECT FROM former_addresses WHERE user_id = p.id OFFSET 0) AS has_moved,
        NOT s.has_left AND coalesce(m.status = 'active', false)
            AND {_gets_other_values("s", has_extras=has_extras)} AS is_updated,
        s.tier IS NULL AND s.paid_expiry IS NOT NULL AND coalesce(m.type, 'free') = 'free'
            AND (:update OR m.status IS DISTINCT FROM 'active') AS drops_expiry
    FROM {STAGED} AS s CROSS JOIN {_LIST} AS l
    {f"LEFT JOIN {STAGED_EXTRAS} AS e ON e.number = s.number" if has_extras else ""}
    LEFT JOIN LATERAL (SELECT id FROM users WHERE email = s.email OFFSET 0) AS u ON true
    LEFT JOIN LATERAL ({_PERSON}) AS p ON true
    LEFT JOIN LATERAL (
        SELECT id, status, name, type, paid_expiry
            {", fields, tag_ids, joined_at" if has_extras else ""} FROM subscriptions
        WHERE list_id = l.list_id AND user_id = p.id OFFSET 0
    ) AS m ON true
), said_no AS ({_SAID_NO}), {_NAMED}, kept AS (
    INSERT INTO {JUDGED}
    SELECT k.number, k.email, {_NEW_VALUES if has_extras else _VALUES},
        coalesce(k.user_id, k.fresh_id), k.user_id IS NULL, k.subscription_id,
        CASE WHEN k.is_again THEN 'duplicate'
            WHEN k.has_left THEN 'left'
            WHEN k.is_active THEN 'already'
            WHEN no_list.number IS NOT NULL THEN 'opted_out'
            ELSE 'added' END,
        no_mail.number IS NULL, k.is_updated AND NOT k.is_again, k.drops_expiry
    FROM (
        SELECT *, has_moved AND number NOT IN (SELECT number FROM named) AS is_again FROM known
        WHERE NOT is_withheld
    ) AS k
    LEFT JOIN said_no AS no_list ON no_list.number = k.number AND no_list.kind = 'list'
    LEFT JOIN said_no AS no_mail ON no_mail.number = k.number AND no_mail.kind = 'email'
    {_OF_WHOM if not has_extras else ""}
    RETURNING number, verdict
)
SELECT verdict, array_agg(number) FROM kept GROUP BY verdict
"""  # noqa: S608


# Postgres thinks to know how many members a list has that is named itself. While statistics know
# nothing of it that is none: it would read all of them, by another index, for each row.
_LIST = "(SELECT CAST(:list_id AS bigint) AS list_id OFFSET 0)"
# A member who changed their address has several addresses, so several rows may belong to them. The
# strictest row is applied. The member's other rows are duplicates, even if they are in other
# chunks. The strictest row is always applied first, because chunks with opt-outs and with rows that
# must not add anyone are applied first. Rows are sorted by person, so that the transactions of two
# chunks can't deadlock.
_NAMED = """first AS (
    SELECT DISTINCT ON (user_id) user_id, number, has_left FROM known WHERE has_moved
    ORDER BY user_id, has_left DESC, is_withheld DESC, number
), once AS (
    INSERT INTO named_members AS n (import_id, user_id, has_left)
    SELECT :import_id, user_id, has_left FROM first ORDER BY user_id
    ON CONFLICT (import_id, user_id) DO UPDATE SET has_left = true
    WHERE excluded.has_left AND NOT n.has_left
    RETURNING user_id
), named AS (
    SELECT first.number FROM first JOIN once USING (user_id)
)"""
# Active members who stay as they are need no row, unless the file says how they agreed.
_OF_WHOM = "WHERE k.has_left OR k.is_updated OR k.is_again OR NOT k.is_active OR k.drops_expiry"
# The opt-outs of the rows' people, by the people and by the digests of their addresses.
_SAID_NO = f"""
    SELECT k.number, o.kind FROM known AS k CROSS JOIN {_LIST} AS l
    CROSS JOIN LATERAL (
        SELECT kind FROM opt_outs WHERE list_id = l.list_id AND user_id = k.user_id OFFSET 0
    ) AS o
    WHERE :has_opt_outs
    UNION
    SELECT d.number, o.kind FROM {STAGED_DIGESTS} AS d CROSS JOIN {_LIST} AS l
    CROSS JOIN LATERAL (
        SELECT kind FROM opt_outs WHERE list_id = l.list_id AND address_hmac = d.digest OFFSET 0
    ) AS o
"""  # noqa: S608
_VALUES = "k.name, k.tier, k.paid_expiry, k.clears_expiry"
# An active member who only gets fields and tags keeps name and tier.
_NEW_VALUES = """CASE WHEN k.is_active AND NOT :update THEN '' ELSE k.name END,
        CASE WHEN k.is_active AND NOT :update THEN NULL ELSE k.tier END,
        CASE WHEN k.is_active AND NOT :update THEN NULL ELSE k.paid_expiry END,
        k.clears_expiry AND (:update OR NOT k.is_active)"""
# The list's own copy of the address comes first, since the owner may know a member who moved by no
# other; then who has the address now (``u``), and then who had it. OFFSET 0 has Postgres take the
# id for a value like any other when it chooses an index for what belongs to it. There is no LIMIT,
# for which it would rather read a table from its beginning than an index.
_PERSON = """
SELECT CASE WHEN former.known IS NULL OR EXISTS (
    SELECT FROM subscriptions
    WHERE list_id = l.list_id AND user_id = u.id AND email = s.email OFFSET 0
) THEN coalesce(u.id, former.member, former.id) ELSE former.known END AS id
FROM (
    SELECT max(f.user_id) AS id, max(m.user_id) AS member,
        max(m.user_id) FILTER (WHERE m.email = s.email) AS known
    FROM (
        SELECT user_id FROM former_addresses WHERE email = s.email OFFSET 0
    ) AS f CROSS JOIN LATERAL (
        SELECT FROM users WHERE id = f.user_id AND erased_at IS NULL OFFSET 0
    ) AS present LEFT JOIN LATERAL (
        SELECT user_id, email FROM subscriptions
        WHERE list_id = l.list_id AND user_id = f.user_id OFFSET 0
    ) AS m ON true
) AS former OFFSET 0
"""
# For active members, once it is known which rows go without their tags.
JUDGE_AGAIN = f"""
UPDATE {JUDGED} AS j SET is_updated = {_gets_other_values("j", has_extras=True)}
FROM {JUDGED} AS k JOIN {STAGED_EXTRAS} AS e ON e.number = k.number CROSS JOIN LATERAL (
    SELECT name, type, paid_expiry, fields, tag_ids, joined_at FROM subscriptions
    WHERE id = k.subscription_id OFFSET 0
) AS m
WHERE j.number = k.number AND j.verdict = 'already' AND j.number = ANY(:numbers)
"""  # noqa: S608
# By whether rows of the chunk have extras.
JUDGE = {has_extras: _judge(has_extras=has_extras) for has_extras in (False, True)}

PUT_OVER_QUOTA = f"""
UPDATE {JUDGED} SET verdict = 'over_quota' WHERE verdict = 'added' AND number >= :first
"""  # noqa: S608
PUT_DENIED = f"UPDATE {JUDGED} SET verdict = 'denied' WHERE number = ANY(:numbers)"  # noqa: S608
COUNT_UPDATED = f"SELECT count(*) FROM {JUDGED} WHERE is_updated"  # noqa: S608


_DROPPED_EXPIRIES = f"""
SELECT number FROM {JUDGED} WHERE drops_expiry AND verdict IN ('added', 'already') ORDER BY number
"""  # noqa: S608


def dropped_expiries(
    uow: UnitOfWork, task: MemberImport, rows: Sequence[JudgedRow]
) -> dict[int, LeftOut]:
    """Return the ends that aren't stored because the member has no paid tier, by row number."""
    if not any(row.tier is None and row.paid_expiry for row in rows):
        return {}
    columns: Sequence[str] = (task.description or {}).get("columns", {}).get("paid_expiry", ())
    column = next(iter(columns), "paid_expiry")
    numbers = uow.session.scalars(text(_DROPPED_EXPIRIES))
    return {n: LeftOut(column, "needs a paid tier", rows[n].paid_expiry) for n in numbers}


# Extras have a table of their own, and the statements that read it run for chunks that have some.

TagIds = Mapping[str, int]


def of_rows(rows: Sequence[JudgedRow]) -> Iterator[tuple[int, RowExtras]]:
    """The extras of rows that may be applied, by the rows' numbers."""
    for number, row in enumerate(rows):
        if row.extras is not None and row.code is None and row.left is None:
            yield number, row.extras


def make_tags(resources: Resources, task: MemberImport, rows: Sequence[JudgedRow]) -> TagIds:
    """The ids of the rows' tags; those that the list has no room for are left out.

    In a transaction of its own: others who make one of them wait for it.
    """
    # A new tag is spelt as the first row does.
    names = dict.fromkeys(name for _, extras in of_rows(rows) for name in extras.tags)
    if not names:
        return {}
    with suppress(DomainError), resources.unit_of_work() as uow:
        return tags.tag_ids_of(uow, task.list_id, names, make=not task.dry_run)
    with resources.unit_of_work() as uow:
        return tags.tag_ids_of(uow, task.list_id, names, make=False)


def copy_extras(uow: UnitOfWork, rows: Sequence[JudgedRow], tag_ids: TagIds) -> None:
    lines = []
    for number, extras in of_rows(rows):
        if extras.fields or extras.tags or extras.joined_at:
            fields = staging.escaped(orjson.dumps(extras.fields).decode())
            own = sorted({tag_ids[name] for name in extras.tags if name in tag_ids})
            ids = ",".join(map(str, own))
            joined_at = extras.joined_at or staging.NULL
            lines.append(f"{number}\t{fields}\t{{{ids}}}\t{joined_at}\n")
    staging.copy(uow, STAGED_EXTRAS, "".join(lines))


def left_out(
    uow: UnitOfWork, task: MemberImport, rows: Sequence[JudgedRow], tag_ids: TagIds
) -> dict[int, list[str]]:
    """Sentences on the values that rows are taken over without, by the rows' numbers.

    Call it once the rows are judged: it takes tags off rows whose members would have too many.
    """
    found: dict[int, list[str]] = {}
    for number, extras in of_rows(rows):
        told = [str(each) for each in extras.left_out]
        missing = [name for name in extras.tags if name not in tag_ids]
        if missing and not task.dry_run:
            told.append(f"The list has no room for more tags, such as {missing[0]!r}.")
        if told:
            found[number] = told
    if tag_ids:
        dropped = uow.session.scalars(text(_DROP_TAGS), {"most": MAX_TAGS_OF_MEMBER}).all()
        for number in dropped:
            found.setdefault(number, []).append(f"A member has at most {MAX_TAGS_OF_MEMBER} tags.")
        if dropped:
            values = {"numbers": dropped, "update": task.on_existing == "update"}
            uow.session.execute(text(JUDGE_AGAIN), values)
    return found


_DROP_TAGS = f"""
UPDATE {STAGED_EXTRAS} AS e SET tag_ids = '{{}}'
FROM {JUDGED} AS j CROSS JOIN LATERAL (
    SELECT tag_ids FROM subscriptions WHERE id = j.subscription_id OFFSET 0
) AS m
WHERE j.number = e.number AND cardinality(m.tag_ids) + cardinality(e.tag_ids) > :most
    AND (SELECT count(*) FROM tags WHERE id = ANY (m.tag_ids || e.tag_ids)) > :most
RETURNING e.number
"""  # noqa: S608


# OFFSET 0 makes Postgres look up one row at a time, as for the verdicts: it would read all people,
# or all members of all lists, while they are some millions.

# People about whom rows are written, known and new, and records that change.
COUNT_WRITES = f"""
SELECT count(*) FILTER (WHERE NOT is_new_person), count(*) FILTER (WHERE is_new_person),
    count(*) FILTER (WHERE subscription_id IS NOT NULL AND verdict <> 'left')
FROM {JUDGED} WHERE verdict IN ('added', 'left') OR is_updated
"""  # noqa: S608
# These locks keep an erasure from coming between.
HOLD_KNOWN_PEOPLE = f"""
SELECT count(*) FROM (
    SELECT user_id FROM {JUDGED}
    WHERE NOT is_new_person AND (verdict IN ('added', 'left') OR is_updated) ORDER BY user_id
) AS j CROSS JOIN LATERAL (
    SELECT FROM users WHERE id = j.user_id AND erased_at IS NULL FOR KEY SHARE OFFSET 0
) AS held
"""  # noqa: S608
_NEW_PEOPLE = "is_new_person AND verdict IN ('added', 'left')"
ADD_PEOPLE = f"""
INSERT INTO users (id, email)
SELECT user_id, email FROM {JUDGED} WHERE {_NEW_PEOPLE} ORDER BY email
"""  # noqa: S608
ADD_MISSING_PEOPLE = f"{ADD_PEOPLE} ON CONFLICT DO NOTHING"
FIND_PEOPLE_AGAIN = f"""
WITH found AS (
    SELECT u.id, u.email FROM {JUDGED} AS j JOIN users AS u ON u.email = j.email
    WHERE {_NEW_PEOPLE} ORDER BY u.id FOR KEY SHARE OF u
)
UPDATE {JUDGED} SET user_id = found.id FROM found
WHERE {JUDGED}.is_new_person AND {JUDGED}.email = found.email
"""  # noqa: S608

# How the file came to know of it stays with the opt-out.
KEEP_OPT_OUTS = f"""
INSERT INTO opt_outs (list_id, user_id, address_hmac, kind, source)
SELECT :list_id, j.user_id, d.digest, 'list', CASE
    WHEN j.number = ANY(CAST(:complained AS int[])) THEN 'complaint'
    WHEN j.number = ANY(CAST(:bounced AS int[])) THEN 'bounce' ELSE 'import' END
FROM {JUDGED} AS j JOIN {STAGED_DIGESTS} AS d ON d.number = j.number AND d.is_current
WHERE j.verdict = 'left' ORDER BY j.user_id
ON CONFLICT DO NOTHING
"""  # noqa: S608
LEAVE = f"""
WITH leaving AS (
    SELECT m.place, m.status FROM {JUDGED} AS j CROSS JOIN LATERAL (
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
"""  # noqa: S608


def keep_changes(*, has_extras: bool) -> str:
    """Keep the earlier and the new values of records that existed before, for an undo."""
    columns = "fields_after, fields_before, tags_added, joined_at_before, joined_at_after,"
    values = "x.fields_after, x.fields_before, x.tags_added, m.joined_at, x.joined_at_after,"
    return f"""
INSERT INTO import_changes (import_id, subscription_id, activated, applied_at, status_before,
    name_before, name_after, type_before, type_after, paid_expiry_before, paid_expiry_after,
    {columns if has_extras else ""}
    import_id_before, imported_at_before, updated_at_before)
SELECT :import_id, m.id, j.verdict = 'added', now(), m.status,
    m.name, coalesce(nullif(j.name, ''), m.name),
    m.type, coalesce(j.tier, m.type),
    m.paid_expiry, {_new_expiry("j")},
    {values if has_extras else ""}
    m.import_id, m.imported_at, m.updated_at
FROM {JUDGED} AS j CROSS JOIN LATERAL (
    SELECT * FROM subscriptions WHERE id = j.subscription_id OFFSET 0
) AS m
{_CHANGED_EXTRAS if has_extras else ""}
WHERE j.verdict = 'added' OR j.is_updated
"""  # noqa: S608


# Only the fields whose value changes, so that an undo leaves the others alone.
_CHANGED_EXTRAS = f"""
LEFT JOIN {STAGED_EXTRAS} AS e ON e.number = j.number
CROSS JOIN LATERAL (
    SELECT jsonb_object_agg(f.key, f.value) AS fields_after,
        jsonb_object_agg(f.key, coalesce(m.fields -> f.key, CAST('null' AS jsonb)))
            AS fields_before,
        nullif(ARRAY(SELECT unnest(e.tag_ids) EXCEPT SELECT unnest(m.tag_ids) ORDER BY 1), '{{}}')
            AS tags_added,
        CASE WHEN m.joined_at IS NULL THEN e.joined_at END AS joined_at_after
    FROM jsonb_each(e.fields) AS f
    WHERE (:update OR j.verdict = 'added' OR m.fields -> f.key IS NULL)
        AND m.fields -> f.key IS DISTINCT FROM f.value
) AS x
"""  # noqa: S608


def change(*, has_extras: bool) -> str:
    """Give records that existed before their new values."""
    return f"""
WITH changed AS (
    UPDATE subscriptions AS m SET
        status = 'active',
        email_enabled = m.email_enabled AND j.wants_mail,
        name = c.name_after, type = c.type_after, paid_expiry = c.paid_expiry_after,
        {_NEW_EXTRAS if has_extras else ""}
        import_id = CASE WHEN c.activated THEN c.import_id ELSE m.import_id END,
        imported_at = CASE WHEN c.activated THEN c.applied_at ELSE m.imported_at END,
        updated_at = c.applied_at
    FROM {JUDGED} AS j CROSS JOIN LATERAL (
        SELECT * FROM import_changes
        WHERE import_id = :import_id AND subscription_id = j.subscription_id OFFSET 0
    ) AS c CROSS JOIN LATERAL (
        SELECT ctid AS place FROM subscriptions WHERE id = j.subscription_id OFFSET 0
    ) AS found
    WHERE m.ctid = found.place AND (j.verdict = 'added' OR j.is_updated)
    RETURNING m.list_id, m.user_id, c.activated, c.status_before, m.email_enabled,
        {_CHANGED_NAMES if has_extras else "CAST(NULL AS text[])"} AS names
)
INSERT INTO subscription_events (list_id, user_id, action, actor, actor_id, via, status_before,
    status_after, email_enabled_before, email_enabled_after, changed)
SELECT list_id, user_id, CASE WHEN activated THEN 'imported' ELSE 'edited' END, 'import', :user_id,
    'import', status_before, 'active', email_enabled, email_enabled, names
FROM changed
"""  # noqa: S608


_NEW_EXTRAS = """fields = m.fields || coalesce(c.fields_after, '{}'),
        tag_ids = CASE WHEN c.tags_added IS NULL THEN m.tag_ids ELSE
            ARRAY(SELECT unnest(m.tag_ids) UNION SELECT unnest(c.tags_added) ORDER BY 1) END,
        joined_at = coalesce(c.joined_at_after, m.joined_at),"""
_CHANGED_NAMES = """nullif(
            CASE WHEN c.tags_added IS NULL THEN CAST('{}' AS text[]) ELSE ARRAY['tags'] END
            || ARRAY(
                SELECT 'fields.' || f.key FROM jsonb_object_keys(c.fields_after) AS k (id)
                JOIN fields AS f ON f.id = CAST(k.id AS bigint) ORDER BY f.id
            ), '{}')"""


def insert(*, has_extras: bool) -> str:
    """Make records of people whom the list does not know."""
    extras = "coalesce(e.fields, '{}'), coalesce(e.tag_ids, '{}'), e.joined_at,"
    return f"""
INSERT INTO subscriptions (list_id, user_id, status, type, paid_expiry, email_enabled, name, email,
    source, {"fields, tag_ids, joined_at," if has_extras else ""}
    import_id, imported_at, created_at, updated_at)
SELECT :list_id, j.user_id, 'active', coalesce(j.tier, 'free'),
    CASE WHEN j.tier IS NOT NULL THEN j.paid_expiry END, j.wants_mail,
    nullif(j.name, ''), j.email, 'import', {extras if has_extras else ""}
    :import_id, now(), now(), now()
FROM {JUDGED} AS j
{f"LEFT JOIN {STAGED_EXTRAS} AS e ON e.number = j.number" if has_extras else ""}
WHERE j.verdict = 'added' AND j.subscription_id IS NULL ORDER BY j.number
"""  # noqa: S608


def undelivered(rows: list[JudgedRow]) -> dict[str, list[int]]:
    """The places of the rows whose addresses bounced, and of those whose people complained."""
    of = {"bounced": ("bounced", "cleaned"), "complained": ("complained",)}
    return {
        name: [place for place, row in enumerate(rows) if row.left in words]
        for name, words in of.items()
    }


# Names who says so, where the file is of no product that we know.
_ANY_FILE = "file"
_PEOPLE = f"SELECT email, user_id FROM {JUDGED} WHERE number = ANY(:numbers)"  # noqa: S608


def keep_claims(
    uow: UnitOfWork, task: MemberImport, rows: Sequence[JudgedRow], found: Sequence[str]
) -> None:
    """Keep the claims about rows' members, who were written before.

    ``found``: each row's verdict.
    """
    claiming = {
        number: [*_claimed(rows[number].email, extras.claim)]
        for number, extras in of_rows(rows)
        if extras.claim and found[number] in (ADDED, ALREADY)
    }
    claims = [claimed for each in claiming.values() for claimed in each]
    if claims:
        judged = uow.session.execute(text(_PEOPLE), {"numbers": list(claiming)})
        people = {row.email: row.user_id for row in judged}
        product = (task.description or {}).get("product") or _ANY_FILE
        consent.claim_many(uow, task.id, claims, people=people, claimed_by=product)


def _claimed(email: str, claim: Mapping[str, str]) -> Iterator[ConsentClaimed]:
    """The first asking and its confirmation are claims of their own."""
    get = claim.get
    at, confirmed_at = (
        None if (text := get(part)) is None else datetime.fromisoformat(text)
        for part in ("at", "confirmed_at")
    )
    if not claim.keys() <= {"confirmed_at", "confirmed_ip"}:
        how = ConsentHow(get("how", ConsentHow.FORM))
        yield ConsentClaimed(email, how, at, get("ip"), get("url"), get("wording"))
    if confirmed_at or get("confirmed_ip"):
        yield ConsentClaimed(email, ConsentHow.CONFIRMATION, confirmed_at, get("confirmed_ip"))
