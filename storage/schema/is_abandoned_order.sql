-- Returns whether a payment order is abandoned. An order is abandoned if its creator had no
-- account, nobody has paid or claimed the order, and no more facts about the payment can arrive.
CREATE FUNCTION is_abandoned_order(wanted bigint) RETURNS boolean
LANGUAGE sql STABLE SET search_path = public, pg_temp AS $$
    SELECT EXISTS (
        SELECT FROM payment_orders
        WHERE id = wanted AND created_at < now() - interval '90 days'
            AND status IN ('created', 'pending', 'failed', 'expired') AND next_check_at IS NULL
            AND user_id IS NULL AND claimed_at IS NULL AND paid_at IS NULL
            AND refunded_minor = 0 AND dispute IS NULL AND mismatch IS NULL AND credited = 0
    )
$$;
