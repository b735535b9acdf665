-- Deletes the consent claims of an import that is undone.
CREATE FUNCTION take_back_claims(of_import bigint, most integer) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    taken bigint;
BEGIN
    IF NOT EXISTS (SELECT FROM imports WHERE id = of_import AND undo_job_id IS NOT NULL) THEN
        RAISE EXCEPTION 'the claims of an import stay until it is undone'
            USING ERRCODE = 'restrict_violation';
    END IF;
    -- A range, not a join: the plan of a join would rely on statistics of a new import.
    DELETE FROM consent_claims WHERE import_id = of_import AND subscription_id <= (
        SELECT max(subscription_id) FROM (
            SELECT subscription_id FROM consent_claims WHERE import_id = of_import
            ORDER BY subscription_id LIMIT most) AS first_ones);
    GET DIAGNOSTICS taken = ROW_COUNT;
    RETURN taken;
END
$$;
