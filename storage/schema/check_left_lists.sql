-- A list that subscriptions refer to stays. A transaction with one snapshot for all its statements
-- would not see a subscription that was committed since, and that held the row until then.
CREATE FUNCTION check_left_lists() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND NEW.id = OLD.id THEN
        RETURN NULL;
    END IF;
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE feature_not_supported
            USING MESSAGE = 'rows of lists are deleted in read committed transactions only';
    END IF;
    PERFORM FROM subscriptions WHERE list_id = OLD.id LIMIT 1 FOR KEY SHARE;
    IF FOUND THEN
        RAISE foreign_key_violation USING TABLE = 'subscriptions',
            CONSTRAINT = 'fk_subscriptions_list_id',
            MESSAGE = 'a subscription refers to the row of lists';
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER lists_check_left AFTER DELETE OR UPDATE OF id ON lists
    FOR EACH ROW EXECUTE FUNCTION check_left_lists();
