-- Refuses to delete payment history, except together with an abandoned order.
CREATE FUNCTION keep_payment_history() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    wanted bigint;
BEGIN
    IF TG_TABLE_NAME = 'payment_orders' THEN
        wanted := OLD.id;
    ELSE
        wanted := OLD.order_id;
    END IF;
    IF is_abandoned_order(wanted) THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'what happened to orders is never changed or deleted'
        USING ERRCODE = 'restrict_violation';
END
$$;

CREATE TRIGGER payment_events_purged BEFORE DELETE ON payment_events
    FOR EACH ROW EXECUTE FUNCTION keep_payment_history();

CREATE TRIGGER payment_order_changes_purged BEFORE DELETE ON payment_order_changes
    FOR EACH ROW EXECUTE FUNCTION keep_payment_history();

CREATE TRIGGER payment_orders_purged BEFORE DELETE ON payment_orders
    FOR EACH ROW EXECUTE FUNCTION keep_payment_history();
