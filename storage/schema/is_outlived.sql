-- A row's id was given before its partition was closed, and so it is at least as old. But a job
-- changes later, and an import or an act goes on. Callers wait for the second look, so it has to
-- be by an index, whatever the statistics say.
CREATE FUNCTION is_outlived(part partitions, since timestamptz) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = public, pg_temp SET enable_seqscan = off AS $$
DECLARE
    is_used boolean := false;
BEGIN
    IF part.parent = 'jobs' THEN
        EXECUTE format(
            'SELECT EXISTS (SELECT FROM %1$I WHERE status = ''queued'')'
            ' OR EXISTS (SELECT FROM %1$I WHERE status = ''running'')'
            ' OR EXISTS (SELECT FROM %1$I WHERE finished_at >= $1)', part.name
        ) INTO is_used USING since;
    ELSIF part.parent = 'import_changes' THEN
        SELECT EXISTS (
            SELECT FROM imports WHERE id >= part.from_id AND id < part.to_id
                AND (finished_at IS NULL OR finished_at >= since)
        ) INTO is_used;
    ELSIF part.parent = 'bulk_changes' THEN
        SELECT EXISTS (
            SELECT FROM bulk_acts WHERE id >= part.from_id AND id < part.to_id
                AND (finished_at IS NULL OR finished_at >= since)
        ) INTO is_used;
    END IF;
    RETURN NOT is_used;
END
$$;
