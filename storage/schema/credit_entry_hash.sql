-- Returns the hash of a ledger entry, which covers the preceding entry's hash. To hide a change of
-- a ledger entry, an attacker must change all following hashes and the hash in the account.
-- `pressroom credits verify` compares the ledger entries with the account.
CREATE FUNCTION credit_entry_hash(before bytea, e credit_entries) RETURNS bytea
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT sha256(before || convert_to(jsonb_build_array(
        e.user_id, e.seq, e.order_id, e.action, e.amount::text, e.delta::text,
        e.balance_after::text, e.rate_usd_to_credit::text, e.currency, e.source_type, e.source_id,
        e.meta, (extract(epoch FROM e.created_at) * 1000000)::bigint
    )::text, 'UTF8'))
$$;
