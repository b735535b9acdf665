-- Makes the next comparison of a watched segment silent after its filter has changed, and discards
-- the comparison in progress. A trigger also covers changes by processes of release 1.1.0.
CREATE FUNCTION silence_watch() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    UPDATE segment_watches SET is_silent = true, progress = NULL, due_at = now()
    WHERE segment_id = NEW.id;
    RETURN NULL;
END
$$;

CREATE TRIGGER segments_silence_watch AFTER UPDATE OF filter ON segments
    FOR EACH ROW WHEN (OLD.filter IS DISTINCT FROM NEW.filter)
    EXECUTE FUNCTION silence_watch();
