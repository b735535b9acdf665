-- Counts the stored bytes of an export, which are the bytes of its row and its file. Rosters, which
-- newsletter software requests before sending a newsletter, are not counted.
CREATE FUNCTION count_stored_exports() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    owner bigint;
    difference bigint := 0;
BEGIN
    IF TG_OP <> 'INSERT' AND OLD.kind = 'members' THEN
        owner := OLD.user_id;
        difference := - row_bytes(OLD.filter::text) - (
            CASE WHEN OLD.files_removed_at IS NULL THEN coalesce(OLD.size, 0) ELSE 0 END);
    END IF;
    IF TG_OP <> 'DELETE' AND NEW.kind = 'members' THEN
        owner := NEW.user_id;
        difference := difference + row_bytes(NEW.filter::text) + (
            CASE WHEN NEW.files_removed_at IS NULL THEN coalesce(NEW.size, 0) ELSE 0 END);
    END IF;
    PERFORM charge_storage(owner, difference);
    RETURN NULL;
END
$$;

CREATE TRIGGER exports_count_stored
    AFTER INSERT OR DELETE OR UPDATE OF size, files_removed_at, filter
    ON exports
    FOR EACH ROW EXECUTE FUNCTION count_stored_exports();
