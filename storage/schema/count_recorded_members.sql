-- Counts the recorded members of watched segments as stored bytes of the list's owner. Each recorded
-- member counts 100 bytes, which is about the size of its row with the index.
CREATE FUNCTION count_recorded_members() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    owner bigint;
    difference bigint := 0;
BEGIN
    SELECT user_id INTO owner FROM lists WHERE id = coalesce(NEW.list_id, OLD.list_id);
    IF TG_OP <> 'INSERT' THEN
        difference := - OLD.recorded;
    END IF;
    IF TG_OP <> 'DELETE' THEN
        difference := difference + NEW.recorded;
    END IF;
    PERFORM charge_storage(owner, difference * 100);
    RETURN NULL;
END
$$;

CREATE TRIGGER watches_count_stored AFTER INSERT OR DELETE OR UPDATE OF recorded
    ON segment_watches
    FOR EACH ROW EXECUTE FUNCTION count_recorded_members();
