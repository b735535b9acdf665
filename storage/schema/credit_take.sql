-- Takes credits back from an account, and records a missing amount as debt. Debt is recorded in
-- ledger entries with a delta of 0.
CREATE FUNCTION credit_take(
    p_user_id bigint, p_amount numeric, p_source_type text, p_order_id bigint, p_rate numeric,
    p_currency text
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    part numeric;
BEGIN
    SELECT least(balance, p_amount) INTO STRICT part FROM credit_accounts
    WHERE user_id = p_user_id FOR NO KEY UPDATE;
    IF part > 0 THEN
        PERFORM credit_append(p_user_id, 'topup_refund', part, -part, p_source_type,
            p_order_id::text, NULL, p_order_id, p_rate, p_currency);
    END IF;
    IF part < p_amount THEN
        PERFORM credit_append(p_user_id, 'topup_refund', p_amount - part, 0, p_source_type,
            p_order_id::text, NULL, p_order_id, p_rate, p_currency);
        UPDATE credit_accounts SET debt = debt + p_amount - part WHERE user_id = p_user_id;
    END IF;
END
$$;
