-- Records each status change of a payment order.
CREATE FUNCTION note_payment_order_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO payment_order_changes (order_id, from_status, to_status, via)
        VALUES (NEW.id, NULL, NEW.status, NEW.changed_via);
    ELSIF NEW.status <> OLD.status THEN
        INSERT INTO payment_order_changes (order_id, from_status, to_status, via)
        VALUES (NEW.id, OLD.status, NEW.status, NEW.changed_via);
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER payment_orders_noted AFTER INSERT OR UPDATE ON payment_orders
    FOR EACH ROW EXECUTE FUNCTION note_payment_order_change();
