-- Moves claims of consent from one record to the other of a merge that is under way, and of no
-- other.
CREATE FUNCTION hand_over_consent_claims(merge_id bigint, of_list bigint) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    gone bigint;
    kept bigint;
    given bigint;
BEGIN
    SELECT b.id, a.id INTO gone, kept
    FROM account_merges AS g
    JOIN subscriptions AS b ON b.user_id = g.merged_id AND b.list_id = of_list
    JOIN subscriptions AS a ON a.user_id = g.user_id AND a.list_id = of_list
    WHERE g.id = merge_id AND g.status IN ('merging', 'merged');
    -- One member has one claim of each kind by an import.
    INSERT INTO consent_claims (import_id, subscription_id, how, occurred_at, ip, url, wording,
        claimed_by, of_list_id)
    SELECT import_id, kept, how, occurred_at, ip, url, wording, claimed_by, of_list_id
    FROM consent_claims WHERE subscription_id = gone AND kept IS NOT NULL
    ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS given = ROW_COUNT;
    DELETE FROM consent_claims WHERE subscription_id = gone AND kept IS NOT NULL;
    RETURN given;
END
$$;
