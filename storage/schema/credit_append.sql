-- Changes the balance of an account and appends a ledger entry, while the account is locked.
-- `credit_append` is the only way to change a balance. `credit_append` returns no row if the
-- balance would become negative. When the balance falls below the account's threshold, an event is
-- added to the feed. A second low balance event is added only after incoming credits have raised
-- the balance to the threshold. A reversed charge does not count as incoming credits.
CREATE FUNCTION credit_append(
    p_user_id bigint, p_action text, p_amount numeric, p_delta numeric, p_source_type text,
    p_source_id text, p_meta jsonb, p_order_id bigint, p_rate numeric, p_currency text
) RETURNS SETOF credit_entries
LANGUAGE plpgsql AS $$
DECLARE
    account credit_accounts;
    entry credit_entries;
    runs_low boolean;
BEGIN
    SELECT * INTO account FROM credit_accounts WHERE user_id = p_user_id FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        IF p_delta < 0 THEN
            RETURN;
        END IF;
        INSERT INTO credit_accounts (user_id, last_hash) VALUES (p_user_id, sha256(''))
        ON CONFLICT (user_id) DO NOTHING;
        SELECT * INTO account FROM credit_accounts WHERE user_id = p_user_id FOR NO KEY UPDATE;
    END IF;
    IF account.balance + p_delta < 0 THEN
        RETURN;
    END IF;
    entry.user_id := p_user_id;
    entry.seq := account.last_seq + 1;
    entry.order_id := p_order_id;
    entry.action := p_action;
    entry.amount := p_amount;
    entry.delta := p_delta;
    entry.balance_after := account.balance + p_delta;
    entry.rate_usd_to_credit := p_rate;
    entry.currency := p_currency;
    entry.source_type := p_source_type;
    entry.source_id := p_source_id;
    entry.meta := p_meta;
    entry.created_at := clock_timestamp();
    entry.hash := credit_entry_hash(account.last_hash, entry);
    INSERT INTO credit_entries (user_id, seq, order_id, action, amount, delta, balance_after,
        rate_usd_to_credit, currency, source_type, source_id, meta, hash, created_at)
    VALUES (entry.user_id, entry.seq, entry.order_id, entry.action, entry.amount, entry.delta,
        entry.balance_after, entry.rate_usd_to_credit, entry.currency, entry.source_type,
        entry.source_id, entry.meta, entry.hash, entry.created_at)
    RETURNING id INTO entry.id;
    runs_low := account.balance >= account.low_below AND entry.balance_after < account.low_below;
    UPDATE credit_accounts SET balance = entry.balance_after, last_seq = entry.seq,
        last_hash = entry.hash, updated_at = entry.created_at,
        low_told = CASE
            WHEN p_delta > 0 AND p_action <> 'consume_reversal' AND entry.balance_after >= low_below
                THEN false
            ELSE low_told OR runs_low
        END
    WHERE user_id = p_user_id;
    IF runs_low AND NOT account.low_told THEN
        INSERT INTO feed_events (user_id, type, subject_id, data)
        VALUES (p_user_id, 'credits.low', account.id, jsonb_build_object(
            'balance_credit', entry.balance_after, 'below', account.low_below));
    END IF;
    RETURN NEXT entry;
END
$$;
