-- Records each erasure of a person for the journal that is stored next to the backups.
CREATE FUNCTION note_erasure() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    INSERT INTO departures (kind, user_id) VALUES ('erased', NEW.id);
    RETURN NULL;
END
$$;

CREATE TRIGGER erasures_are_noted AFTER UPDATE OF erased_at ON users
    FOR EACH ROW WHEN (OLD.erased_at IS NULL AND NEW.erased_at IS NOT NULL)
    EXECUTE FUNCTION note_erasure();
