-- Refuses an invalid change of a payment order. The status of an order may change only as the table
-- `payment_order_transitions` allows. The terms of an order never change, and payment facts are
-- never removed.
CREATE FUNCTION guard_payment_order() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF NEW.status <> 'created' THEN
            RAISE EXCEPTION 'an order begins as created, not as %', NEW.status
                USING ERRCODE = 'check_violation';
        END IF;
        RETURN NEW;
    END IF;
    IF NEW.status <> OLD.status AND NOT EXISTS (
        SELECT FROM payment_order_transitions
        WHERE from_status = OLD.status AND to_status = NEW.status
    ) THEN
        RAISE EXCEPTION 'an order never goes from % to %', OLD.status, NEW.status
            USING ERRCODE = 'check_violation';
    END IF;
    IF (NEW.id, NEW.channel, NEW.currency, NEW.amount, NEW.amount_minor, NEW.credit_amount,
            NEW.credits_per_usd, NEW.units_per_usd, NEW.expires_at, NEW.created_at)
        IS DISTINCT FROM (OLD.id, OLD.channel, OLD.currency, OLD.amount, OLD.amount_minor,
            OLD.credit_amount, OLD.credits_per_usd, OLD.units_per_usd, OLD.expires_at,
            OLD.created_at)
    THEN
        RAISE EXCEPTION 'the terms of an order stay as they were'
            USING ERRCODE = 'restrict_violation';
    END IF;
    IF (OLD.user_id IS NOT NULL AND NEW.user_id IS DISTINCT FROM OLD.user_id)
        OR (OLD.claimed_at IS NOT NULL AND NEW.claimed_at IS DISTINCT FROM OLD.claimed_at)
        OR (OLD.session_id IS NOT NULL AND NEW.session_id IS DISTINCT FROM OLD.session_id)
        OR (OLD.payment_id IS NOT NULL AND NEW.payment_id IS DISTINCT FROM OLD.payment_id)
        OR (OLD.paid_at IS NOT NULL AND NEW.paid_at IS DISTINCT FROM OLD.paid_at)
        OR (OLD.mismatch IS NOT NULL AND NEW.mismatch IS DISTINCT FROM OLD.mismatch)
        OR (OLD.resolution IS NOT NULL AND NEW.resolution IS DISTINCT FROM OLD.resolution)
        OR NEW.disputes_minor < OLD.disputes_minor
        OR NEW.disputes_ended_minor < OLD.disputes_ended_minor
        OR NEW.disputes_lost_minor < OLD.disputes_lost_minor
        OR NEW.disputes_lost_minor > NEW.disputes_ended_minor
        OR NEW.disputes_ended_minor > NEW.disputes_minor
        OR (NEW.disputed_minor IS DISTINCT FROM CASE WHEN NEW.disputes_minor > 0
            THEN NEW.disputes_minor - NEW.disputes_ended_minor + NEW.disputes_lost_minor END)
        OR (NEW.dispute IS DISTINCT FROM CASE
            WHEN NEW.disputes_minor > NEW.disputes_ended_minor THEN 'open'
            WHEN NEW.disputes_lost_minor > 0 THEN 'lost'
            WHEN NEW.disputes_minor > 0 THEN 'won' END)
        OR (OLD.is_failed AND NOT NEW.is_failed) OR (OLD.is_expired AND NOT NEW.is_expired)
        OR NEW.refunded_minor < OLD.refunded_minor OR NEW.credited < OLD.credited
        OR NEW.refunds_failed_minor < OLD.refunds_failed_minor
        OR (OLD.closed_at IS NOT NULL AND NEW.closed_at IS DISTINCT FROM OLD.closed_at)
    THEN
        RAISE EXCEPTION 'what is known of an order only grows'
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER payment_orders_guarded BEFORE INSERT OR UPDATE ON payment_orders
    FOR EACH ROW EXECUTE FUNCTION guard_payment_order();
