-- Lifts a member's bounces when the list's mail to the member is turned on. The trigger is needed
-- because release 1.0.0 turns mail on without changing the table `bounces`.
CREATE FUNCTION lift_bounces() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM FROM bounces
    WHERE list_id = NEW.list_id AND user_id = NEW.user_id
        AND ended_at IS NULL AND lifted_at IS NULL
    ORDER BY list_id, address_hmac, mailing_id FOR UPDATE;
    UPDATE bounces SET lifted_at = clock_timestamp()
    WHERE list_id = NEW.list_id AND user_id = NEW.user_id
        AND ended_at IS NULL AND lifted_at IS NULL;
    RETURN NULL;
END
$$;

CREATE TRIGGER subscriptions_lift_bounces AFTER UPDATE OF email_enabled ON subscriptions
    FOR EACH ROW WHEN (NEW.email_enabled AND NOT OLD.email_enabled)
    EXECUTE FUNCTION lift_bounces();
