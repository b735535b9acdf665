-- A roster is the sender's, and is not counted.
CREATE FUNCTION count_stored_exports() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    owner bigint;
    difference bigint := 0;
BEGIN
    IF TG_OP <> 'INSERT' THEN
        owner := OLD.user_id;
        difference := -(
            CASE WHEN OLD.kind = 'members' AND OLD.files_removed_at IS NULL
                THEN coalesce(OLD.size, 0) ELSE 0 END);
    END IF;
    IF TG_OP <> 'DELETE' THEN
        owner := NEW.user_id;
        difference := difference + (
            CASE WHEN NEW.kind = 'members' AND NEW.files_removed_at IS NULL
                THEN coalesce(NEW.size, 0) ELSE 0 END);
    END IF;
    IF difference <> 0 THEN
        INSERT INTO storage_uses (user_id, bytes) VALUES (owner, difference)
        ON CONFLICT (user_id) DO UPDATE SET bytes = storage_uses.bytes + excluded.bytes;
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER exports_count_stored AFTER INSERT OR DELETE OR UPDATE OF size, files_removed_at
    ON exports
    FOR EACH ROW EXECUTE FUNCTION count_stored_exports();
