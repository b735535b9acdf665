"""What people leave behind in large numbers, written as the product writes it."""

from core.ids import random_hash_id
from devstack.harness.stack import Stack

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
_KEYED = """
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
_ANSWERS = """
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


def fill(stack: Stack, *, list_id: int, user_id: int, other_id: int, rows: int) -> None:
    """Rows of each kind: about the person, of what they did to another one, and what they own."""
    tag = random_hash_id()
    stack.query(_EVENTS, list_id, user_id, other_id, rows)
    stack.query(_EVENTS, list_id, other_id, user_id, rows)
    stack.query(_ATTACHMENTS, user_id, tag, tag, rows)
    stack.query(_JOBS, user_id, rows)
    stack.query(_KEYED, user_id, rows)
    stack.query(_CONSENT, list_id, user_id, rows)
    [(key_id,)] = stack.query(_KEY, user_id, tag)
    stack.query(_REQUESTS, key_id, rows)
    [(endpoint_id,)] = stack.query(_ENDPOINT, other_id)
    stack.query(_ANSWERS, endpoint_id, user_id, rows)


def left(stack: Stack, user_id: int) -> dict[str, int]:
    """How many rows tell of the person, or are theirs, by table; those that should be gone."""
    traced = "(ip IS NOT NULL OR request_id IS NOT NULL)"
    conditions = {
        "subscription_events": f"%s IN (user_id, actor_id) AND {traced}",
        "attachments": "user_id = %s",
        "jobs": "user_id = %s",
        "idempotency_records": "caller_id = %s",
        "consent_entries": "user_id = %s",
        "api_keys": "user_id = %s",
        "webhook_deliveries": "person_id = %s AND answer IS NOT NULL",
    }
    found = {
        table: stack.query(f"SELECT count(*) FROM {table} WHERE {condition}", user_id)[0][0]
        for table, condition in conditions.items()
    }
    return {table: int(str(rows)) for table, rows in found.items() if rows}
