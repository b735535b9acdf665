-- Adds credits to an account. If an account has a debt, new credits first pay the debt.
CREATE FUNCTION credit_give(
    p_user_id bigint, p_action text, p_amount numeric, p_source_type text, p_source_id text,
    p_meta jsonb, p_order_id bigint, p_rate numeric, p_currency text
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    paid numeric;
BEGIN
    PERFORM credit_append(p_user_id, p_action, p_amount, p_amount, p_source_type,
        p_source_id, p_meta, p_order_id, p_rate, p_currency);
    SELECT least(debt, p_amount) INTO paid FROM credit_accounts WHERE user_id = p_user_id;
    IF paid > 0 THEN
        PERFORM credit_append(p_user_id, 'debt_payment', paid, -paid, p_source_type,
            p_source_id, NULL, p_order_id, p_rate, p_currency);
        UPDATE credit_accounts SET debt = debt - paid WHERE user_id = p_user_id;
    END IF;
END
$$;
