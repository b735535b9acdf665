-- Reverses an open charge whose `taken_by` is `p_taken_by`, and returns the amount of the charge.
-- Returns NULL if the charge was already settled, reversed or taken by another worker.
CREATE FUNCTION credit_reverse(p_entry_id bigint, p_taken_by text) RETURNS numeric
LANGUAGE plpgsql AS $$
DECLARE
    charge credit_entries;
BEGIN
    DELETE FROM open_charges
    WHERE entry_id = p_entry_id AND taken_by IS NOT DISTINCT FROM p_taken_by;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    SELECT * INTO STRICT charge FROM credit_entries WHERE id = p_entry_id;
    PERFORM credit_give(charge.user_id, 'consume_reversal', charge.amount, charge.source_type,
        charge.source_id, jsonb_build_object('entry_id', charge.id), NULL, NULL, NULL);
    RETURN charge.amount;
END
$$;
