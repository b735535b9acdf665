-- Tells imported bounces and complaints from other imported opt-outs. Release 1.1.0 stores the
-- action `unsubscribed` for all of them, after the opt-outs.
CREATE FUNCTION name_imported_departure() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    NEW.action = coalesce((
        SELECT CASE source WHEN 'bounce' THEN 'bounced' ELSE 'complained' END FROM opt_outs
        WHERE list_id = NEW.list_id AND user_id = NEW.user_id AND kind = 'list'
            AND source IN ('bounce', 'complaint')
    ), NEW.action);
    RETURN NEW;
END
$$;

CREATE TRIGGER subscription_events_name_imported_departure BEFORE INSERT ON subscription_events
    FOR EACH ROW WHEN (NEW.via = 'import' AND NEW.action = 'unsubscribed')
    EXECUTE FUNCTION name_imported_departure();
