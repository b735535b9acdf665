-- Charges an account and stores the idempotency record of the request in one round trip. For a
-- repeated request, `credit_consume` returns the response to the first request. The account is
-- locked first, so that two requests with the same idempotency key run one after the other. A
-- caller without an account has neither credits nor an earlier request. `credit_consume` returns no
-- row if the caller's API key is revoked or expired, or if the key's owner is erased.
CREATE FUNCTION credit_consume(
    p_user_id bigint, p_key_id bigint, p_amount numeric, p_source_id text, p_meta jsonb, p_route text, p_key text,
    p_fingerprint bytea
) RETURNS TABLE (outcome text, answer text)
LANGUAGE plpgsql AS $$
DECLARE
    known record;
    entry credit_entries;
    said jsonb;
BEGIN
    IF p_key_id IS NOT NULL THEN
        PERFORM 1 FROM api_keys AS k JOIN users AS u ON u.id = k.user_id
        WHERE k.id = p_key_id AND k.user_id = p_user_id AND k.revoked_at IS NULL
            AND (k.expires_at IS NULL OR k.expires_at > now()) AND u.erased_at IS NULL;
        IF NOT FOUND THEN
            RETURN;
        END IF;
    END IF;
    IF p_key IS NOT NULL THEN
        PERFORM 1 FROM credit_accounts WHERE user_id = p_user_id FOR NO KEY UPDATE;
        IF NOT FOUND THEN
            RETURN QUERY SELECT 'insufficient', NULL::text;
            RETURN;
        END IF;
        SELECT r.fingerprint, r.answer INTO known FROM idempotency_records AS r
        WHERE r.caller_id = p_user_id AND r.route = p_route AND r.key = p_key
            AND r.expires_at > now();
        IF FOUND THEN
            RETURN QUERY SELECT
                CASE WHEN known.fingerprint = p_fingerprint THEN 'replayed' ELSE 'key_reused' END,
                (known.answer -> 'data')::text;
            RETURN;
        END IF;
    END IF;
    SELECT * INTO entry FROM credit_append(
        p_user_id, 'consume', p_amount, -p_amount, 'consume', p_source_id, p_meta, NULL, NULL, NULL
    );
    IF entry.id IS NULL THEN
        RETURN QUERY SELECT 'insufficient', NULL::text;
        RETURN;
    END IF;
    said := credit_entry_json(entry);
    IF p_key IS NOT NULL THEN
        INSERT INTO idempotency_records (caller_id, route, key, fingerprint, answer)
        VALUES (p_user_id, p_route, p_key, p_fingerprint, jsonb_build_object('data', said))
        ON CONFLICT (caller_id, route, key) DO UPDATE SET fingerprint = excluded.fingerprint,
            answer = excluded.answer, job_id = NULL, created_at = now(),
            expires_at = now() + interval '24 hours';
    END IF;
    RETURN QUERY SELECT 'done', said::text;
END
$$;
