"""SQL statements that fill the tables of orders and ledger entries.

The generated ledger entries pass the checks of ``pressroom credits verify``. In each account, the
ledger entries 1, 101, 201 and so on are topups, and all other entries are charges. The balance
after a ledger entry can be computed from the entry's number, because topups and charges follow a
fixed pattern.
"""

# The aggregate `chained` calls Pressroom's hash function for each entry in an account's hash chain.
FUNCTIONS = """
CREATE AGGREGATE pg_temp.chained (credit_entries) (
    SFUNC = credit_entry_hash, STYPE = bytea,
    INITCOND = '\\xe3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855'
);
CREATE FUNCTION pg_temp.length(account bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE account WHEN 1 THEN {largest_account} ELSE {other_account} END::bigint
$$;
CREATE FUNCTION pg_temp.paid_orders(account bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT (pg_temp.length(account) + 99) / 100 $$;
-- The numbers of orders are unique across all accounts, and start with the largest account.
CREATE FUNCTION pg_temp.order_number(account bigint, place bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT place + CASE account WHEN 1 THEN 0
        ELSE pg_temp.paid_orders(1) + (account - 2) * pg_temp.paid_orders(2) END
$$;
CREATE FUNCTION pg_temp.balance(seq bigint) RETURNS numeric
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT 1000.0 * ((seq + 99) / 100) - 1.5 * (seq - (seq + 99) / 100)
$$
"""

# Maps each filled column of a ledger entry to an SQL expression for its value. Columns that aren't
# in ``ENTRY`` are NULL.
ENTRY = {
    "user_id": "pg_temp.person_id(account)",
    "seq": "place",
    "order_id": "bought",
    "action": "CASE WHEN bought IS NULL THEN 'consume' ELSE 'topup' END",
    "amount": "CASE WHEN bought IS NULL THEN 1.5 ELSE 1000 END::numeric(15,4)",
    "delta": "CASE WHEN bought IS NULL THEN -1.5 ELSE 1000 END::numeric(15,4)",
    "balance_after": "pg_temp.balance(place)::numeric(15,4)",
    "rate_usd_to_credit": "CASE WHEN bought IS NOT NULL THEN 100 END::numeric(15,4)",
    "currency": "CASE WHEN bought IS NOT NULL THEN 'USD' END",
    "source_type": "CASE WHEN bought IS NULL THEN 'consume' ELSE 'order' END",
    "source_id": "coalesce(bought, place)::text",
    "created_at": "pg_temp.ago(place, pg_temp.length(account), 700)",
}

STATEMENTS = {
    "payment_orders": """
INSERT INTO payment_orders (id, user_id, status, changed_via, channel, currency, amount,
    amount_minor, credit_amount, credits_per_usd, units_per_usd, expires_at, session_id, payment_id,
    paid_at, credited, created_at, updated_at)
SELECT pg_temp.order_id(pg_temp.order_number(a, place)), pg_temp.person_id(a), 'paid', 'webhook',
    'stripe', 'USD', 10, 1000, 1000, 100, 1, born + interval '1 day',
    'cs_' || pg_temp.order_number(a, place), 'pi_' || pg_temp.order_number(a, place), born, 1000,
    born, born
FROM generate_series(1, {owners}::bigint) AS a
CROSS JOIN LATERAL generate_series(1, pg_temp.paid_orders(a)) AS place
CROSS JOIN LATERAL (SELECT pg_temp.ago(place, pg_temp.paid_orders(a), 700) AS born) AS t;
INSERT INTO payment_orders (id, status, changed_via, channel, currency, amount, amount_minor,
    credit_amount, credits_per_usd, units_per_usd, expires_at, session_id, is_expired, created_at,
    updated_at, claim_token_hmac)
SELECT pg_temp.order_id(100000000 + n), 'expired', 'poll', 'stripe', 'USD', 10, 1000, 1000, 100, 1,
    born + interval '1 day', 'cs_unpaid_' || n, true, born, born, sha256(('claim' || n)::bytea)
FROM generate_series(1, {unpaid_orders}::bigint) AS n
CROSS JOIN LATERAL (SELECT '{anchor}'::timestamptz - interval '1 hour'
    * pg_temp.dice(n, 30, 400) AS born) AS t
""",
    "payment_order_changes": """
INSERT INTO payment_order_changes (order_id, from_status, to_status, via, created_at)
SELECT o.id, c.before, c.after, c.via, o.created_at
FROM payment_orders AS o CROSS JOIN LATERAL (VALUES
    (1, NULL, 'created', 'request'), (2, 'created', 'pending', 'job'),
    (3, 'pending', o.status, o.changed_via)) AS c (step, before, after, via)
ORDER BY o.created_at, o.id, c.step
""",
    "payment_events": """
INSERT INTO payment_events (channel, event_id, type, order_id, facts, happened_at, created_at)
SELECT 'stripe', 'evt_' || session_id, 'checkout.session.completed', id, '{{"paid": true}}',
    paid_at, paid_at
FROM payment_orders WHERE status = 'paid' ORDER BY created_at
""",
    "credit_entries": """
INSERT INTO credit_entries (user_id, seq, order_id, action, amount, delta, balance_after,
    rate_usd_to_credit, currency, source_type, source_id, hash, created_at)
SELECT (e).user_id, (e).seq, (e).order_id, (e).action, (e).amount, (e).delta, (e).balance_after,
    (e).rate_usd_to_credit, (e).currency, (e).source_type, (e).source_id, hash, (e).created_at
FROM (
    SELECT e, pg_temp.chained(e) OVER (PARTITION BY account ORDER BY place) AS hash
    FROM (
        SELECT account, place, ROW({entry})::credit_entries AS e
        FROM generate_series(1, {owners}::bigint) AS account
        CROSS JOIN LATERAL generate_series(1, pg_temp.length(account)) AS place
        CROSS JOIN LATERAL (SELECT CASE WHEN place % 100 = 1
            THEN pg_temp.order_id(pg_temp.order_number(account, (place + 99) / 100)) END
            AS bought) AS t
    ) AS made
) AS done ORDER BY (e).created_at
""",
    "credit_accounts": """
INSERT INTO credit_accounts (user_id, balance, last_seq, last_hash, updated_at)
SELECT e.user_id, e.balance_after, e.seq, e.hash, e.created_at
FROM generate_series(1, {owners}::bigint) AS a
JOIN credit_entries AS e ON e.user_id = pg_temp.person_id(a) AND e.seq = pg_temp.length(a)
""",
}
