-- Counts the stored bytes of webhook deliveries. Deliveries about members are not counted, because
-- readers can cause such deliveries.
CREATE FUNCTION count_stored_deliveries() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    owner bigint;
    difference bigint := 0;
BEGIN
    IF coalesce(NEW.person_id, OLD.person_id) IS NOT NULL THEN
        RETURN NULL;
    END IF;
    IF TG_OP <> 'INSERT' THEN
        difference := - row_bytes(NULL) - coalesce(octet_length(OLD.answer), 0);
    END IF;
    IF TG_OP <> 'DELETE' THEN
        difference := difference + row_bytes(NULL) + coalesce(octet_length(NEW.answer), 0);
    END IF;
    IF difference <> 0 THEN
        SELECT user_id INTO owner FROM webhook_endpoints
        WHERE id = coalesce(NEW.endpoint_id, OLD.endpoint_id);
        PERFORM charge_storage(owner, difference);
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER webhook_deliveries_count_stored AFTER INSERT OR DELETE OR UPDATE OF answer
    ON webhook_deliveries
    FOR EACH ROW EXECUTE FUNCTION count_stored_deliveries();
