-- Moves what shows consent from one record to the other of a merge that is under way, and of no
-- other.
CREATE FUNCTION hand_over_consent_entries(merge_id bigint, most integer) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    gone bigint;
    kept bigint;
    given bigint;
BEGIN
    SELECT g.merged_id, g.user_id INTO gone, kept FROM account_merges AS g
    WHERE g.id = merge_id AND g.status IN ('merging', 'merged');
    UPDATE consent_entries SET user_id = kept WHERE id = ANY(ARRAY(
        SELECT id FROM consent_entries WHERE user_id = gone LIMIT most));
    GET DIAGNOSTICS given = ROW_COUNT;
    RETURN given;
END
$$;
