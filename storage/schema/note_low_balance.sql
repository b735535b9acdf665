-- Requests the mail about a low balance together with the event in the feed. Release 1.1.0 also
-- causes such mails, because it changes balances by the same database function.
CREATE FUNCTION note_low_balance() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    NEW.low_mail_due = true;
    RETURN NEW;
END
$$;

CREATE TRIGGER credit_accounts_note_low_balance BEFORE UPDATE OF low_told ON credit_accounts
    FOR EACH ROW WHEN (NEW.low_told AND NOT OLD.low_told)
    EXECUTE FUNCTION note_low_balance();
