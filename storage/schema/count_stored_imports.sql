-- Counts the stored bytes of an import. A finished import counts as 0 bytes, because its file has
-- been deleted.
CREATE FUNCTION count_stored_imports() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    owner bigint;
    difference bigint := 0;
BEGIN
    IF TG_OP <> 'INSERT' THEN
        owner := OLD.user_id;
        difference := -(
            CASE WHEN OLD.finished_at IS NULL THEN OLD.size + OLD.chunk_bytes ELSE 0 END);
    END IF;
    IF TG_OP <> 'DELETE' THEN
        owner := NEW.user_id;
        difference := difference + (
            CASE WHEN NEW.finished_at IS NULL THEN NEW.size + NEW.chunk_bytes ELSE 0 END);
    END IF;
    PERFORM charge_storage(owner, difference);
    RETURN NULL;
END
$$;

CREATE TRIGGER imports_count_stored AFTER INSERT OR DELETE OR UPDATE OF finished_at, chunk_bytes
    ON imports
    FOR EACH ROW EXECUTE FUNCTION count_stored_imports();
