-- Counts the stored bytes of segments and bulk actions, whose rows contain a filter.
CREATE FUNCTION count_stored_filters() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    owner bigint;
    difference bigint := 0;
BEGIN
    SELECT user_id INTO owner FROM lists WHERE id = coalesce(NEW.list_id, OLD.list_id);
    IF TG_OP <> 'INSERT' THEN
        difference := - row_bytes(OLD.filter::text);
    END IF;
    IF TG_OP <> 'DELETE' THEN
        difference := difference + row_bytes(NEW.filter::text);
    END IF;
    PERFORM charge_storage(owner, difference);
    RETURN NULL;
END
$$;

CREATE TRIGGER segments_count_stored AFTER INSERT OR DELETE OR UPDATE OF filter
    ON segments
    FOR EACH ROW EXECUTE FUNCTION count_stored_filters();

CREATE TRIGGER bulk_actions_count_stored AFTER INSERT OR DELETE OR UPDATE OF filter
    ON bulk_actions
    FOR EACH ROW EXECUTE FUNCTION count_stored_filters();
