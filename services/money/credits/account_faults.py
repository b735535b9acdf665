"""Finds entries and accounts that contradict each other or themselves.

Both statements go through the accounts one by one, each from its checkpoint, so that they read what
is new by an index and sort nothing. ``:distrusted`` are the users whose checkpoints say
nothing. With ``:is_whole`` all entries are read; the other checkpoints must fit them all the same.
"""

# Of every user who has entries, an account or a checkpoint. One step in the index for each of them
# finds the entries' users.
_ACCOUNTS = """
WITH RECURSIVE holders AS (
    SELECT min(user_id) AS user_id FROM credit_entries
    UNION ALL
    SELECT (SELECT min(e.user_id) FROM credit_entries AS e WHERE e.user_id > h.user_id)
    FROM holders AS h WHERE h.user_id IS NOT NULL
), begun AS (
    SELECT *, NOT :is_whole AND NOT is_suspect AS counts FROM credit_checkpoints
    WHERE user_id <> ALL(CAST(:distrusted AS bigint[]))
), accounts AS (
    SELECT user_id, h.user_id IS NOT NULL AS has_entries, a.user_id IS NOT NULL AS exists,
        a.balance, a.debt, a.last_seq, a.last_hash,
        b.seq AS verified_seq, b.hash AS verified_hash, coalesce(b.counts, false) AS is_resumed,
        CASE WHEN b.counts THEN b.seq ELSE 0 END AS from_seq,
        CASE WHEN b.counts THEN b.hash ELSE sha256('') END AS from_hash,
        CASE WHEN b.counts THEN b.balance ELSE 0 END AS from_balance,
        CASE WHEN b.counts THEN b.debt ELSE 0 END AS from_debt
    FROM (SELECT user_id FROM holders WHERE user_id IS NOT NULL) AS h
    FULL JOIN credit_accounts AS a USING (user_id)
    FULL JOIN begun AS b USING (user_id)
)
"""

ENTRY_FAULTS = (
    _ACCOUNTS  # noqa: S608 - all of it stands here
    + """
SELECT a.user_id, c.seq, f.fault, c.order_id
FROM accounts AS a CROSS JOIN LATERAL (
    SELECT e AS entry, e.seq, e.delta, e.balance_after, e.hash, e.action, e.order_id,
        lag(e.seq, 1, a.from_seq) OVER w AS seq_before,
        lag(e.balance_after, 1, a.from_balance) OVER w AS balance_before,
        lag(e.hash, 1, a.from_hash) OVER w AS hash_before
    FROM credit_entries AS e WHERE e.user_id = a.user_id AND e.seq > a.from_seq
    WINDOW w AS (ORDER BY e.seq)
) AS c CROSS JOIN LATERAL (VALUES
    (c.seq <> c.seq_before + 1, 'an entry is missing before this one'),
    (c.balance_after <> c.balance_before + c.delta, 'balance_after does not follow from delta'),
    (c.balance_after < 0, 'the balance is negative'),
    (c.hash <> credit_entry_hash(c.hash_before, c.entry), 'the hash does not fit what it says'),
    (CASE
        WHEN c.action IN ('topup', 'grant', 'consume_reversal') THEN c.delta <= 0
        WHEN c.action IN ('consume', 'debt_payment') THEN c.delta >= 0
        WHEN c.action = 'topup_refund' THEN c.delta > 0
        ELSE c.delta = 0
    END, 'the delta does not fit the action')
) AS f (is_wrong, fault)
WHERE f.is_wrong
"""
)

# Every account, with its faults, what of it was read, and up to where it is verified by that.
ACCOUNTS = (
    _ACCOUNTS  # noqa: S608 - all of it stands here
    + """
SELECT a.user_id, a.is_resumed, s.entries, s.order_ids, s.last_seq, l.hash, a.balance, a.debt,
    ARRAY(SELECT f.fault FROM (VALUES
        (a.verified_seq IS NOT NULL AND NOT EXISTS (SELECT FROM credit_entries AS e
            WHERE e.user_id = a.user_id AND e.seq = a.verified_seq AND e.hash = a.verified_hash),
            'the entry of the checkpoint is not as it was verified'),
        (a.has_entries AND NOT a.exists, 'there are entries and no account'),
        (a.balance < 0 OR a.debt < 0, 'the balance or the debt is negative'),
        (a.balance <> a.from_balance + s.total, 'the balance is not the sum of the entries'),
        (a.debt <> a.from_debt + s.owed, 'the debt does not follow from the entries'),
        (a.balance <> coalesce(l.balance_after, a.from_balance),
            'the balance is not that of the last entry'),
        (a.last_seq <> s.last_seq OR a.last_seq <> a.from_seq + s.entries,
            'entries are missing at the end'),
        (a.last_hash <> coalesce(l.hash, a.from_hash), 'the account does not end in the last hash')
    ) AS f (is_wrong, fault) WHERE f.is_wrong) AS faults
FROM accounts AS a CROSS JOIN LATERAL (
    SELECT count(*) AS entries, coalesce(max(e.seq), a.from_seq) AS last_seq,
        coalesce(sum(e.delta), 0) AS total,
        coalesce(sum(CASE
            WHEN e.action = 'topup_refund' AND e.delta = 0 THEN e.amount
            WHEN e.action = 'debt_payment' THEN -e.amount ELSE 0
        END), 0) AS owed,
        array_agg(DISTINCT e.order_id) FILTER (WHERE e.order_id IS NOT NULL) AS order_ids
    FROM credit_entries AS e WHERE e.user_id = a.user_id AND e.seq > a.from_seq
) AS s LEFT JOIN credit_entries AS l ON l.user_id = a.user_id AND l.seq = s.last_seq
"""
)
