-- Deletes the consent records of people who are erased or no longer exist. Clears the consent
-- wordings of lists whose owner is erased or no longer exists. OFFSET 0 in a subquery makes
-- Postgres look up one subscription at a time.
CREATE FUNCTION erase_consent(people bigint[], most integer) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    gone bigint[] := ARRAY(
        SELECT person FROM unnest(people) AS person WHERE NOT EXISTS (
            SELECT FROM users WHERE id = person AND erased_at IS NULL));
    entries bigint;
    claims bigint;
    wordings bigint;
BEGIN
    -- For an empty array Postgres would read all of the smallest index.
    IF cardinality(gone) = 0 THEN
        RETURN 0;
    END IF;
    DELETE FROM consent_entries WHERE id = ANY(ARRAY(
        SELECT id FROM consent_entries WHERE user_id = ANY(gone) LIMIT most));
    GET DIAGNOSTICS entries = ROW_COUNT;
    DELETE FROM consent_claims WHERE ctid = ANY(ARRAY(
        SELECT claim.place FROM subscriptions AS m CROSS JOIN LATERAL (
            SELECT ctid AS place FROM consent_claims
            WHERE subscription_id = m.id OFFSET 0 FOR UPDATE
        ) AS claim
        WHERE m.user_id = ANY(gone) LIMIT most));
    GET DIAGNOSTICS claims = ROW_COUNT;
    UPDATE consent_wordings SET wording = 'Erased' WHERE ctid = ANY(ARRAY(
        SELECT version.place FROM lists AS l CROSS JOIN LATERAL (
            SELECT ctid AS place FROM consent_wordings
            WHERE list_id = l.id AND wording <> 'Erased' OFFSET 0 FOR UPDATE
        ) AS version
        WHERE l.user_id = ANY(gone) LIMIT most));
    GET DIAGNOSTICS wordings = ROW_COUNT;
    RETURN entries + claims + wordings;
END
$$;
