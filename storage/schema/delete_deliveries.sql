-- Deletes the deliveries of a webhook endpoint before the endpoint itself, because the endpoint's
-- row identifies their owner.
CREATE FUNCTION delete_deliveries() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM webhook_deliveries WHERE endpoint_id = OLD.id;
    RETURN OLD;
END
$$;

CREATE TRIGGER webhook_endpoints_delete_deliveries BEFORE DELETE
    ON webhook_endpoints
    FOR EACH ROW EXECUTE FUNCTION delete_deliveries();
