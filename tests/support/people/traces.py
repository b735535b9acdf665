"""Inserts many rows about a person, and counts the rows that an erasure hasn't changed."""

from core.ids import random_hash_id, random_id
from devstack.harness.stack import Stack
from models.declarative import Model

_EVENTS = """
INSERT INTO subscription_events (list_id, user_id, action, actor, actor_id, via, ip, request_id)
SELECT %s, %s, 'edited', 'owner', %s, 'login', '192.0.2.7', 'request-' || n
FROM generate_series(1, %s) AS n
"""
_ATTACHMENTS = """
INSERT INTO attachments (user_id, hash_id, status, encrypted, mime_type, filename, size, checksum,
    width, height, original_filename, original_mime_type, original_size, original_checksum)
SELECT %s, %s || n, 2, false, 'image/webp', %s || n || '.webp', 1, repeat('0', 64), 1, 1,
    'mine.png', 'image/png', 1, ''
FROM generate_series(1, %s) AS n
"""
_JOBS = """
INSERT INTO jobs (kind, queue, user_id, status, finished_at)
SELECT 'attachment.process', 'media', %s, 'succeeded', now() FROM generate_series(1, %s)
"""
_IDEMPOTENCY_RECORDS = """
INSERT INTO idempotency_records (caller_id, route, key, fingerprint, answer)
SELECT %s, 'POST /consume', 'key-' || n, sha256('x'), '{}' FROM generate_series(1, %s) AS n
"""
_CONSENT = """
INSERT INTO consent_entries (list_id, user_id, how, ip)
SELECT %s, %s, 'login', '192.0.2.7' FROM generate_series(1, %s)
"""
_ENDPOINT = """
INSERT INTO webhook_endpoints (user_id, url, types, place, event_id, state)
VALUES (%s, 'https://hooks.example.com', '{subscription.left}', 0, 0, 'ended') RETURNING id
"""
_DELIVERIES = """
INSERT INTO webhook_deliveries (endpoint_id, event_id, event_type, person_id, status, answer)
SELECT %s, -n, 'subscription.left', %s, 'delivered', 'thanks, Ada' FROM generate_series(1, %s) AS n
"""

_KEY = """
INSERT INTO api_keys (user_id, name, secret_hmac, last_four)
VALUES (%s, 'mine', sha256(%s::bytea), 'xxxx') RETURNING id
"""
_REQUESTS = """
INSERT INTO api_requests (key_id, occurred_at, id, method, route, status, request_id, milliseconds)
SELECT %s, now(), n, 'GET', '/lists', 200, 'request-' || n, 1 FROM generate_series(1, %s) AS n
"""
_SENDER = """
INSERT INTO senders (user_id, name, provider) VALUES (%s, 'mine', 'generic') RETURNING id
"""
_SECRETS = """
INSERT INTO sender_secrets (sender_id, context, wrapped_key, wrapped_by)
VALUES (%s, 'traces-' || %s, 'x', 'x')
"""
_BODIES = """
INSERT INTO sender_bodies (sender_id, size, context, wrapped_key, wrapped_by, body)
SELECT %s, 1, 'x', 'x', 'x', 'x' FROM generate_series(1, %s)
"""
_COUNTS = """
INSERT INTO sender_counts (sender_id, hour, outcome, count) VALUES (%s, now(), 'applied', 1)
"""
_REPORTS = """
INSERT INTO sender_reports (sender_id, received_at, occurred_at, outcome, list_id, user_id)
SELECT %s, now(), now(), 'applied', %s, %s FROM generate_series(1, %s)
"""
_MARKS = """
INSERT INTO mailing_marks (user_id, list_id, mailing_id, kind)
SELECT %s, %s, n, 'delivered' FROM generate_series(1, %s) AS n
"""
_BOUNCES = """
INSERT INTO bounces (list_id, address_hmac, mailing_id, user_id, is_hard, status, mailing_at,
    bounced_at)
SELECT %s, sha256(%s::bytea), n, %s, false, '4.2.2', now(), now() FROM generate_series(1, %s) AS n
"""
_LIST = """
INSERT INTO lists (id, user_id, title, slug, archived_at)
VALUES (%s, %s, 'Mine', 'mine-' || %s, now()) RETURNING id
"""
_MAILINGS = """
INSERT INTO mailings (id, list_id, label, created_at, rows)
SELECT %s + n, %s, 'Ada', now(), 1 FROM generate_series(1, %s) AS n
"""
_VIEWS = """
INSERT INTO sign_up_views (list_id, day, seen)
SELECT %s, CURRENT_DATE - n, 1 FROM generate_series(1, %s) AS n
"""
_ORIGINS = """
INSERT INTO origin_days (list_id, day, utm_source, utm_medium, utm_campaign, referrer, joined, gone)
SELECT %s, CURRENT_DATE - n, 'ada', '', '', '', 1, 0 FROM generate_series(1, %s) AS n
"""
_ORIGIN_CHANGES = """
INSERT INTO origin_day_deltas
    (list_id, day, utm_source, utm_medium, utm_campaign, referrer, joined, gone)
SELECT %s, CURRENT_DATE, 'ada', '', '', '', 1, 0 FROM generate_series(1, %s)
"""
_LANDINGS = """
INSERT INTO landing_days (list_id, day, landing, joined, gone)
SELECT %s, CURRENT_DATE - n, '/ada', 1, 0 FROM generate_series(1, %s) AS n
"""
_ENGAGEMENT = """
INSERT INTO member_engagement (list_id, user_id, measured_since) VALUES (%s, %s, CURRENT_DATE)
"""
_ANSWERS = """
INSERT INTO engagement_answers (list_id, user_id, is_allowed) VALUES (%s, %s, true)
"""
_LANDING_CHANGES = """
INSERT INTO landing_day_deltas (list_id, day, landing, joined, gone)
SELECT %s, CURRENT_DATE, '/ada', 1, 0 FROM generate_series(1, %s)
"""

# The names of columns that contain the id of a person.
PERSON_COLUMNS = ("user_id", "person_id", "caller_id")
# Tables whose rows belong to a person. Other tables contain foreign keys to these tables. If a
# foreign key refers to a row of an erased person, the erasure must also change or delete the
# referring row.
OWNED_TABLES = ("senders", "api_keys", "webhook_endpoints", "lists")
# An erasure leaves some of the person's rows in these tables unchanged. The SQL conditions select
# the rows that an erasure must delete or change.
_ERASURE_CONDITIONS = {
    "subscription_events": "%(id)s IN (user_id, actor_id)"
    " AND (ip IS NOT NULL OR request_id IS NOT NULL)",
    "webhook_deliveries": "(person_id = %(id)s AND answer IS NOT NULL"
    " OR endpoint_id IN (SELECT id FROM webhook_endpoints WHERE user_id = %(id)s))",
}
# Tables to which ``insert_rows`` adds no rows, because other tests of erasures cover these tables.
NOT_FILLED = {
    # Tables with rows that an erasure keeps, such as payments, opt-outs and evidence. If the erased
    # person owned lists, the erasure keeps the lists, so that the lists' members can still
    # unsubscribe.
    *("credit_accounts", "credit_checkpoints", "credit_entries", "payment_orders", "erasures"),
    *(
        "opt_outs",
        "address_opt_outs",
        "departures",
        "events",
        "feed_events",
        "segment_changes",
        "lists",
        "subscriptions",
    ),
    *("subscriber_counts", "subscriber_deltas", "member_days", "member_day_deltas"),
    # Tables with rows in which an erasure deletes only the personal values.
    *("imports", "exports", "list_reports", "consent_wordings"),
    # Tables in which a person has only a few rows.
    *("account_mails", "bulk_actions", "composer_uses", "denied_entries", "erased_denials"),
    *("fields", "former_addresses", "mailed_links", "oauth_grants", "passkeys", "recovery_codes"),
    # The tests of watched segments cover the erasure of recorded members.
    *("segment_watches", "segment_members"),
    *("segments", "storage_uses", "tags", "deleted_tags", "teammates", "totp_secrets"),
    *("user_sessions", "webhook_endpoints", "webhook_secrets", "named_members"),
}


def insert_rows(stack: Stack, *, list_id: int, user_id: int, other_id: int, rows: int) -> None:
    """Add rows about the person, rows about the person's actions, and rows that the person owns."""
    tag = random_hash_id()
    stack.query(_EVENTS, list_id, user_id, other_id, rows)
    stack.query(_EVENTS, list_id, other_id, user_id, rows)
    stack.query(_ATTACHMENTS, user_id, tag, tag, rows)
    stack.query(_JOBS, user_id, rows)
    stack.query(_IDEMPOTENCY_RECORDS, user_id, rows)
    stack.query(_CONSENT, list_id, user_id, rows)
    [(key_id,)] = stack.query(_KEY, user_id, tag)
    stack.query(_REQUESTS, key_id, rows)
    [(endpoint_id,)] = stack.query(_ENDPOINT, other_id)
    stack.query(_DELIVERIES, endpoint_id, user_id, rows)
    _fill_reports(stack, tag, list_id=list_id, user_id=user_id, other_id=other_id, rows=rows)


def _fill_reports(
    stack: Stack, tag: str, *, list_id: int, user_id: int, other_id: int, rows: int
) -> None:
    """Add reports about the person, and add a sender and an archived list that the person owns."""
    [(sender_id,)] = stack.query(_SENDER, user_id)
    [(other_sender_id,)] = stack.query(_SENDER, other_id)
    stack.query(_SECRETS, sender_id, tag)
    stack.query(_BODIES, sender_id, rows)
    stack.query(_COUNTS, sender_id)
    stack.query(_REPORTS, sender_id, list_id, other_id, rows)
    stack.query(_REPORTS, other_sender_id, list_id, user_id, rows)
    stack.query(_MARKS, user_id, list_id, rows)
    stack.query(_BOUNCES, list_id, tag, user_id, rows)
    [(own_id,)] = stack.query(_LIST, random_id(), user_id, tag)
    # A list records engagement only for people with a subscription, so that an erasure finds it.
    stack.query(_ENGAGEMENT, own_id, other_id)
    for answer_list_id, answer_user_id in ((list_id, user_id), (own_id, other_id)):
        stack.query(_ANSWERS, answer_list_id, answer_user_id)
    stack.query(_BOUNCES, own_id, tag, other_id, rows)
    stack.query(_MAILINGS, random_id(), own_id, rows)
    stack.query(_VIEWS, own_id, rows)
    stack.query(_ORIGINS, own_id, rows)
    stack.query(_ORIGIN_CHANGES, own_id, rows)
    stack.query(_LANDINGS, own_id, rows)
    stack.query(_LANDING_CHANGES, own_id, rows)


def count_unerased_rows(stack: Stack, user_id: int) -> dict[str, int]:
    """Map each table to the number of rows that an erasure of the person must delete or change.

    The result omits tables that contain no row that an erasure must delete or change.
    The function finds the tables in the SQLAlchemy models, so it also checks tables that are added
    later.
    """
    conditions = {name: each for name, each in build_conditions().items() if name not in NOT_FILLED}
    counts = {
        table: stack.query(f"SELECT count(*) FROM {table} WHERE {condition % {'id': user_id}}")[0][
            0
        ]
        for table, condition in conditions.items()
    }
    return {table: int(str(rows)) for table, rows in counts.items() if rows}


def build_conditions() -> dict[str, str]:
    conditions: dict[str, list[str]] = {}
    for table in Model.metadata.tables.values():
        columns = [f"{name} = %(id)s" for name in PERSON_COLUMNS if name in table.columns]
        columns += [
            f"{key.parent.name} IN (SELECT id FROM {key.column.table.name} WHERE user_id = %(id)s)"
            for key in table.foreign_keys
            if key.column.table.name in OWNED_TABLES
        ]
        if "list_id" in table.columns and not any("list_id IN" in each for each in columns):
            columns.append("list_id IN (SELECT id FROM lists WHERE user_id = %(id)s)")
        if columns:
            conditions[table.name] = columns
    return {name: " OR ".join(each) for name, each in conditions.items()} | _ERASURE_CONDITIONS
