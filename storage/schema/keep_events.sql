-- Refuses to change events, and to delete events in their first year. Only the IP addresses and
-- user agents of an erased person may be cleared. The search path of `keep_events` is fixed, so
-- that a caller can't substitute tables or functions.
CREATE FUNCTION keep_events() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    IF TG_OP = 'DELETE' AND OLD.occurred_at < now() - interval '1 year' THEN
        RETURN OLD;
    END IF;
    IF TG_OP = 'UPDATE'
        AND to_jsonb(NEW) = to_jsonb(OLD) || '{"ip": null, "user_agent": null}'
        AND EXISTS (SELECT FROM users WHERE id = OLD.user_id AND erased_at IS NOT NULL)
    THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'events are never changed, and kept for a year'
        USING ERRCODE = 'restrict_violation';
END
$$;

CREATE TRIGGER events_are_not_truncated BEFORE TRUNCATE ON events
    FOR EACH STATEMENT EXECUTE FUNCTION keep_events();

CREATE TRIGGER events_stay BEFORE DELETE OR UPDATE ON events
    FOR EACH ROW EXECUTE FUNCTION keep_events();
