-- The threshold is the account's own, so a charge costs no look at anything else. It fires when
-- the balance crosses the threshold, and not again before the balance was above it.
CREATE FUNCTION tell_low_credits() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    INSERT INTO feed_events (user_id, type, subject_id, data)
    VALUES (NEW.user_id, 'credits.low', NEW.id,
        jsonb_build_object('balance_credit', NEW.balance, 'below', NEW.low_below));
    RETURN NULL;
END
$$;

CREATE TRIGGER low_credits_are_told AFTER UPDATE OF balance ON credit_accounts
    FOR EACH ROW WHEN (OLD.balance >= NEW.low_below AND NEW.balance < NEW.low_below)
    EXECUTE FUNCTION tell_low_credits();
