-- Refuses to change the history of payment orders. `keep_payment_history` guards deletions.
CREATE FUNCTION refuse_payment_history_changes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'what happened to orders is never changed or deleted'
        USING ERRCODE = 'restrict_violation';
END
$$;

CREATE TRIGGER payment_events_stay BEFORE UPDATE OR TRUNCATE ON payment_events
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_payment_history_changes();

CREATE TRIGGER payment_order_changes_stay BEFORE UPDATE OR TRUNCATE ON payment_order_changes
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_payment_history_changes();

CREATE TRIGGER payment_order_transitions_stay BEFORE DELETE OR UPDATE OR TRUNCATE
    ON payment_order_transitions
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_payment_history_changes();

CREATE TRIGGER payment_orders_stay BEFORE TRUNCATE ON payment_orders
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_payment_history_changes();
