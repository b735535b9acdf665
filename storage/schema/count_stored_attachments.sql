-- Counts the stored bytes of an attachment's objects. A failed upload counts as 0 bytes, because
-- its file is kept for a few days at most.
CREATE FUNCTION count_stored_attachments() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    owner bigint;
    difference bigint := 0;
BEGIN
    IF TG_OP <> 'INSERT' THEN
        owner := OLD.user_id;
        difference := -(
            CASE OLD.status
                WHEN 2 THEN OLD.size + coalesce((
                    SELECT sum((each ->> 'size')::bigint)
                    FROM jsonb_array_elements(OLD.renditions) AS each), 0)
                WHEN 3 THEN 0
                ELSE OLD.original_size
            END);
    END IF;
    IF TG_OP <> 'DELETE' THEN
        owner := NEW.user_id;
        difference := difference + (
            CASE NEW.status
                WHEN 2 THEN NEW.size + coalesce((
                    SELECT sum((each ->> 'size')::bigint)
                    FROM jsonb_array_elements(NEW.renditions) AS each), 0)
                WHEN 3 THEN 0
                ELSE NEW.original_size
            END);
    END IF;
    PERFORM charge_storage(owner, difference);
    RETURN NULL;
END
$$;

CREATE TRIGGER attachments_count_stored AFTER INSERT OR DELETE OR UPDATE OF status, size, renditions
    ON attachments
    FOR EACH ROW EXECUTE FUNCTION count_stored_attachments();
