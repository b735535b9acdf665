-- Records since when a webhook or a sender has had its state. A sender that fails for another reason
-- has failed again. Release 1.1.0 doesn't set the column. The trigger therefore records its changes too.
CREATE FUNCTION note_state() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    NEW.state_since = now();
    RETURN NEW;
END
$$;

CREATE TRIGGER senders_note_state BEFORE UPDATE OF state, warnings ON senders
    FOR EACH ROW WHEN (NEW.state <> OLD.state OR NOT NEW.warnings <@ OLD.warnings)
    EXECUTE FUNCTION note_state();

CREATE TRIGGER webhook_endpoints_note_state BEFORE UPDATE OF state ON webhook_endpoints
    FOR EACH ROW WHEN (NEW.state <> OLD.state)
    EXECUTE FUNCTION note_state();
