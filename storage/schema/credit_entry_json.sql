-- Returns a ledger entry in the format of the API, in which amounts have four decimal places.
CREATE FUNCTION credit_entry_json(e credit_entries) RETURNS jsonb
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT jsonb_build_object(
        'id', e.id, 'seq', e.seq, 'user_id', e.user_id, 'order_id', e.order_id,
        'action', e.action, 'amount_credit', e.amount, 'delta_credit', e.delta,
        'balance_after', e.balance_after, 'rate_usd_to_credit', e.rate_usd_to_credit,
        'currency', e.currency, 'source_type', e.source_type, 'source_id', e.source_id,
        'meta', e.meta, 'created_at',
        to_char(e.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))
$$;
