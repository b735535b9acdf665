"""Finds orders that contradict the ledger or themselves.

The SQL states the rules of ``services.money.topups.facts`` a second time, so that a mistake in one
shows in the other.
"""

# The orders that changed after a checkpoint.
NEW_ORDERS = "SELECT DISTINCT order_id FROM payment_order_changes WHERE id > :after"

# Up to here no change is missing any more. Numbers are taken before the commit, so a change with a
# lower number may show later, but no transaction lasts for an hour.
LAST_SETTLED_CHANGE = """
SELECT c.id FROM payment_order_changes AS c
WHERE c.created_at < (
    SELECT created_at FROM payment_order_changes ORDER BY id DESC LIMIT 1) - interval '1 hour'
ORDER BY c.id DESC LIMIT 1
"""

# In the orders of ``:order_ids``, or in all of them.
ORDER_FAULTS = """
WITH told AS (
    SELECT order_id,
        count(*) FILTER (WHERE action = 'topup') AS topups,
        count(DISTINCT user_id) AS users, min(user_id) AS user_id,
        coalesce(sum(amount) FILTER (WHERE action = 'topup'), 0) AS credited,
        coalesce(sum(amount) FILTER (WHERE action = 'topup_refund'), 0)
            - coalesce(sum(amount) FILTER (WHERE action = 'adjust'), 0) AS taken
    FROM credit_entries
    WHERE order_id IS NOT NULL AND (:is_whole OR order_id = ANY(CAST(:order_ids AS bigint[])))
    GROUP BY order_id
), history AS (
    SELECT c.order_id, max(c.id) AS last_id, bool_or(
        c.from_status IS DISTINCT FROM c.status_before
        OR (c.from_status IS NOT NULL AND t.to_status IS NULL)
    ) AS is_broken
    FROM (SELECT *, lag(to_status) OVER (PARTITION BY order_id ORDER BY id) AS status_before
        FROM payment_order_changes
        WHERE :is_whole OR order_id = ANY(CAST(:order_ids AS bigint[]))) AS c
    LEFT JOIN payment_order_transitions AS t USING (from_status, to_status)
    GROUP BY c.order_id
), worth AS (
    SELECT o.id, least(o.amount_minor, greatest(0, o.refunded_minor - o.refunds_failed_minor)
            + o.disputes_minor - o.disputes_ended_minor + o.disputes_lost_minor) AS back,
        o.dispute IS DISTINCT FROM CASE
            WHEN o.disputes_minor > o.disputes_ended_minor THEN 'open'
            WHEN o.disputes_lost_minor > 0 THEN 'lost'
            WHEN o.disputes_minor > 0 THEN 'won' END AS is_misnamed,
        o.user_id IS NOT NULL AND o.status IN ('paid', 'disputed', 'refunded')
            AND o.resolution IS DISTINCT FROM 'refunded' AS is_credited
    FROM payment_orders AS o
    WHERE :is_whole OR o.id = ANY(CAST(:order_ids AS bigint[]))
)
SELECT coalesce(o.user_id, t.user_id) AS user_id, NULL AS seq, f.fault,
    coalesce(o.id, t.order_id) AS order_id
FROM payment_orders AS o
JOIN worth AS w USING (id)
LEFT JOIN history AS h ON h.order_id = o.id
LEFT JOIN payment_order_changes AS l ON l.id = h.last_id
FULL JOIN told AS t ON t.order_id = o.id
CROSS JOIN LATERAL (VALUES
    (o.id IS NULL, 'entries name an order that there is not'),
    (w.is_credited AND coalesce(t.topups, 0) <> 1, 'a paid order has no topup entry'),
    (NOT w.is_credited AND t.topups > 0, 'an order that is not paid has a topup entry'),
    (t.users > 1 OR t.user_id <> o.user_id, 'an entry of the order is somebody else''s'),
    (o.credited <> coalesce(t.credited, 0), 'the order was not credited as its entries say'),
    (o.taken <> coalesce(t.taken, 0), 'what was taken is not what the entries say'),
    (w.is_credited AND o.credited <> o.credit_amount, 'the order was not credited in full'),
    -- Rounded up, in whole numbers: ten-thousandths of a credit for minor units of money.
    (w.is_credited AND o.taken <> div(
        o.credit_amount * 10000 * w.back + o.amount_minor - 1, o.amount_minor) / 10000,
        'what was taken is not what the payer has back'),
    (w.is_misnamed, 'the state of the disputes is not what their sums say'),
    (o.status = 'paid_unclaimed' AND o.user_id IS NOT NULL, 'an order of somebody is unclaimed'),
    (o.status IN ('paid', 'paid_unclaimed', 'disputed') AND o.paid_at IS NULL,
        'the order is paid, and no payment is known'),
    (o.status IS DISTINCT FROM l.to_status, 'the status is not the last of its history'),
    (h.is_broken, 'the history of its states has a gap')
) AS f (is_wrong, fault)
WHERE f.is_wrong
"""
