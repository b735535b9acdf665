-- Rows as a deployment of the revision 0007 has them after a while. :size counts subscriptions.
-- Rules and triggers are off while they are written, since all of them hold.
SET session_replication_role = replica;
SET synchronous_commit = off;

INSERT INTO users (id, email)
SELECT 1000000000 + n, 'reader' || n || '@example.org' FROM generate_series(1, :size) AS n;

INSERT INTO subscriptions (list_id, user_id, status, type, email_enabled, name, email, source)
SELECT :list, 1000000000 + n, CASE WHEN n % 10 = 0 THEN 'unsubscribed' ELSE 'active' END, 'free',
    true, 'Reader ' || n, 'reader' || n || '@example.org', 'import'
FROM generate_series(1, :size) AS n;

INSERT INTO subscription_events (list_id, user_id, action, actor, via, status_after, ip, created_at)
SELECT :list, 1000000000 + n, 'subscribed', 'stranger', 'confirmation', 'active', '192.0.2.' || n % 250,
    now() - n % 700 * interval '1 day'
FROM generate_series(1, :size) AS n;

INSERT INTO jobs (kind, lane, user_id, status, finished_at, created_at)
SELECT 'mail.send', 'io', NULL, 'succeeded', now() - n % 29 * interval '1 day', now() - n % 29 * interval '1 day'
FROM generate_series(1, :size / 2) AS n;

INSERT INTO imports (list_id, user_id, source, object_prefix, size, status, finished_at, files_removed_at)
SELECT :list, :owner, 'members', 'imports/' || n, 1, 'succeeded', now() - n % 600 * interval '1 day', now()
FROM generate_series(1, :size / 100) AS n;

INSERT INTO import_changes (import_id, subscription_id, activated, applied_at, status_before, type_before,
    type_after, updated_at_before)
SELECT (SELECT min(id) FROM imports) + id % (:size / 100), id, false, now(), 'active', 'free', 'free', now()
FROM subscriptions WHERE id % 3 = 0;

RESET session_replication_role;
ANALYZE;
