"""Inserts a row of any age for each retention rule."""

from datetime import timedelta

from sqlalchemy import inspect

from core.ids import random_id
from devstack.harness.stack import Stack
from services.privacy.retention import RULES, Rule

# Maps the name of each retention rule to an INSERT statement, without the words `INSERT INTO`. In
# the statement, `{at}` stands for the time at which the retention period of the row begins, and
# `{any}` for a number that is different for each row.
INSERTS = {
    "jobs": "jobs (kind, queue, status, finished_at) VALUES ('x', 'bulk', 'succeeded', {at})",
    "subscription_events": "subscription_events (list_id, user_id, action, actor, via, created_at)"
    " VALUES ({list}, {user}, 'requested', 'stranger', 'challenge', {at})",
    "subscription_events.ip": "subscription_events (list_id, user_id, action, actor, via, ip,"
    " created_at) VALUES ({list}, {user}, 'requested', 'stranger', 'challenge', '192.0.2.1', {at})",
    "consent_entries.ip": "consent_entries (list_id, user_id, how, ip, occurred_at)"
    " VALUES ({list}, {user}, 'form', '192.0.2.1', {at})",
    "consent_claims.ip": "consent_claims (import_id, subscription_id, how, claimed_by, ip,"
    " occurred_at) VALUES ({import}, {any}, 'form', 'file', '192.0.2.1', {at})",
    "events": "events (user_id, type, occurred_at) VALUES (1, 'x', {at})",
    "feed_events": "feed_events (user_id, type, occurred_at) VALUES (1, 'key.created', {at})",
    "import_changes": "import_changes (import_id, subscription_id, activated, applied_at,"
    " status_before, type_before, type_after, updated_at_before)"
    " VALUES ({import}, {any}, false, {at}, 'active', 'free', 'free', now())",
    "bulk_changes": "bulk_changes (bulk_id, subscription_id, applied_at, updated_at_before,"
    " status_before, type_before) VALUES (1, {any}, {at}, now(), 'active', 'free')",
    "bulk_actions": "bulk_actions (list_id, user_id, filter, action, status, finished_at)"
    " VALUES ({list}, {user}, '{{}}', 'remove', 'succeeded', {at})",
    "imports": "imports (list_id, user_id, source, object_prefix, size, status, finished_at,"
    " files_removed_at) VALUES ({list}, {user}, 'file', '{any}', 1, 'succeeded', {at}, now())",
    "imports.files": "imports (list_id, user_id, source, object_prefix, size, status, created_at,"
    " finished_at) VALUES ({list}, {user}, 'file', '{any}', 1, 'succeeded', {at}, {at})",
    "exports": "exports (list_id, user_id, kind, object_prefix, created_at, files_removed_at)"
    " VALUES ({list}, {user}, 'members', '{any}', {at}, now())",
    "exports.files": "exports (list_id, user_id, kind, object_prefix, created_at, finished_at)"
    " VALUES ({list}, {user}, 'members', '{any}', {at}, {at})",
    "idempotency_records": "idempotency_records (caller_id, route, key, fingerprint, answer,"
    " expires_at) VALUES ({user}, 'x', '{any}', sha256('x'), '{{}}', {at})",
    "user_sessions": "user_sessions (user_id, secret_hmac, expires_at)"
    " VALUES ({user}, sha256('{any}'), {at})",
    "user_sessions.ended": "user_sessions (user_id, secret_hmac, expires_at, ended_at)"
    " VALUES ({user}, sha256('{any}'), now() + interval '1 day', {at})",
    "mailed_links": "mailed_links (purpose, user_id, secret_hmac, expires_at)"
    " VALUES ('x', {user}, sha256('{any}'), {at})",
    "account_mails": "account_mails (kind, email, created_at) VALUES ('x', '{any}', {at})",
    "mail_counts": "mail_counts (digest, mails, ends_at) VALUES (sha256('{any}'), 1, {at})",
    "list_reports": "list_reports (list_id, created_at) VALUES ({list}, {at})",
    "departures": "departures (kind, created_at) VALUES ('erased', {at})",
    "webhook_deliveries": "webhook_deliveries (endpoint_id, event_type, created_at)"
    " VALUES ({endpoint}, 'key.created', {at})",
    "webhook_endpoints": "webhook_endpoints (user_id, url, types, place, event_id, deleted_at)"
    " VALUES ({user}, 'https://example.com/', '{{key.created}}', 1, 1, {at})",
    "webhook_secrets": "webhook_secrets (endpoint_id, context, wrapped_key, wrapped_by, expires_at)"
    " VALUES ({endpoint}, 'retention-{any}', 'x', 'x', {at})",
    "api_requests": "api_requests (key_id, occurred_at, id, method, route, status, request_id,"
    " milliseconds) VALUES ({key}, {at}, {any}, 'GET', '/', 200, 'x', 1)",
    "mailings": "mailings (id, list_id, created_at, rows) VALUES ({any}, {list}, {at}, 1)",
    "mailing_marks": "mailing_marks (mailing_id, user_id, list_id, kind, created_at)"
    " VALUES ({any}, 1, 1, 'delivered', {at})",
    "segment_changes": "segment_changes (watch_id, user_id, change, entry, day, at)"
    " VALUES ({any}, 1, 'entered', 1, {at}, {at})",
    "sender_reports": "sender_reports (sender_id, received_at, occurred_at, outcome)"
    " VALUES ({sender}, {at}, {at}, 'applied')",
    "sender_bodies": "sender_bodies (sender_id, received_at, size, context, wrapped_key,"
    " wrapped_by, body) VALUES ({sender}, {at}, 1, 'x', 'x', 'x', 'x')",
    "sender_secrets": "sender_secrets (sender_id, context, wrapped_key, wrapped_by, expires_at)"
    " VALUES ({sender}, 'retention-{any}', 'x', 'x', {at})",
    "sender_counts": "sender_counts (sender_id, hour, outcome, count)"
    " VALUES ({sender}, {at}, 'applied', 1)",
    "senders": "senders (user_id, name, provider, deleted_at)"
    " VALUES ({user}, 'x', 'generic', {at})",
    "bounces": "bounces (list_id, address_hmac, mailing_id, is_hard, mailing_at, bounced_at,"
    " created_at) VALUES ({list}, sha256('x'), {any}, true, now(), now(), {at})",
    "sign_up_views": "sign_up_views (list_id, day, seen) VALUES ({list}, {at}, 1)"
    " ON CONFLICT (list_id, day) DO UPDATE SET seen = 1",
    "login_attempts": "login_attempts (subject, attempts, paused_until, tried_at)"
    " VALUES (sha256('{any}'), 1, now(), {at})",
    "spent_proofs": "spent_proofs (proof_hash, expires_at) VALUES (sha256('{any}'), {at})",
    "composer_uses": "composer_uses (user_id, day, calls) VALUES ({own}, {at}, 1)",
    "oauth_codes": "oauth_codes (grant_id, secret_hmac, redirect_uri, scopes, challenge,"
    " expires_at) VALUES ({grant}, sha256('{any}'), 'x', '{{}}', repeat('x', 43), {at})",
    "oauth_tokens": "oauth_tokens (kind, grant_id, family, secret_hmac, scopes, expires_at)"
    " VALUES ('access', {grant}, 1, sha256('{any}'), '{{}}', {at})",
    "subscriptions": "subscriptions (list_id, user_id, status, source, created_at)"
    " VALUES ({list}, {own}, 'pending', 'challenge', {at})",
}
RULES_BY_NAME = {rule.name: rule for rule in RULES}


# Maps each table that stores the day of an event, but not the exact time, to one day.
TIME_PRECISIONS = dict.fromkeys(("composer_uses", "sign_up_views"), timedelta(days=1))
MINUTE = timedelta(minutes=1)


class AgedRows:
    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self._row_count = 0
        self.parents = self._make_parents()

    def make_old(self, name: str) -> str:
        return self.make(name, past_by=TIME_PRECISIONS.get(name, MINUTE))

    def make_young(self, name: str) -> str:
        return self.make(name, past_by=-TIME_PRECISIONS.get(name, MINUTE))

    def make(self, name: str, *, past_by: timedelta) -> str:
        """Insert a row whose retention period ended ``past_by`` ago, and return the row's key."""
        self._row_count += 1
        # Create a new user for each row, because in some tables a unique constraint forbids a
        # second row for the same user.
        own_user_id = random_id()
        if "{own}" in INSERTS[name]:
            query = "INSERT INTO users (id, email) VALUES (%s, %s)"
            self.stack.query(query, own_user_id, f"{own_user_id}@example.com")
        rule = RULES_BY_NAME[name]
        seconds = (rule.age(self.stack.settings()) + past_by).total_seconds()
        row = INSERTS[name].format(
            at=f"now() - interval '{seconds:.0f} seconds'",
            any=self._row_count,
            own=own_user_id,
            **self.parents,
        )
        [(key,)] = self.stack.query(f"INSERT INTO {row} RETURNING {_key_expression(rule)}")
        return str(key)

    def is_there(self, name: str, key: str) -> bool:
        rule = RULES_BY_NAME[name]
        query = f"SELECT 1 FROM {rule.model.__tablename__} WHERE {_key_expression(rule)} = %s"
        return bool(self.stack.query(query, key))

    def _make_parents(self) -> dict[str, object]:
        """Insert one row into each table that the rows in ``INSERTS`` refer to."""
        user = self.stack.create_owner().user_id
        keys: dict[str, object] = {"user": user}
        for name, row in {
            "list": "lists (id, user_id, title, slug) VALUES ({user}, {user}, 'x', 's{user}')",
            "import": "imports (list_id, user_id, source, object_prefix, size)"
            " VALUES ({list}, {user}, 'file', 'parent', 1)",
            "maintenance": "maintenance (name, every_seconds)"
            " VALUES ('maintenance.shorten_ips', 3600)",
            "endpoint": "webhook_endpoints (user_id, url, types, place, event_id)"
            " VALUES ({user}, 'https://example.com/', '{{key.created}}', 1, 1)",
            "sender": "senders (user_id, name, provider) VALUES ({user}, 'x', 'generic')",
            "key": "api_keys (user_id, name, secret_hmac, last_four)"
            " VALUES ({user}, 'x', sha256('retention'), 'xxxx')",
            "client": "oauth_clients (client_id, name, redirect_uris, scopes)"
            " VALUES ('retention', 'x', '{{}}', '{{}}')",
            "grant": "oauth_grants (user_id, client_id, scopes)"
            " VALUES ({user}, '{client}', '{{}}')",
        }.items():
            column = {"client": "client_id", "maintenance": "name"}.get(name, "id")
            [(keys[name],)] = self.stack.query(
                f"INSERT INTO {row.format(**keys)} RETURNING {column}"
            )
        return keys


def _key_expression(rule: Rule) -> str:
    columns = ", ".join(column.name for column in inspect(rule.model).primary_key)
    return f"ROW({columns})::text"
