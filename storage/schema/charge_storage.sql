-- Changes the number of bytes that an owner stores. Only a positive difference creates a missing
-- row in `storage_uses`, because deleting the files of an erased owner must not create the row
-- again.
CREATE FUNCTION charge_storage(owner bigint, difference bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF difference > 0 THEN
        INSERT INTO storage_uses (user_id, bytes) VALUES (owner, difference)
        ON CONFLICT (user_id) DO UPDATE SET bytes = storage_uses.bytes + excluded.bytes;
    ELSIF difference < 0 THEN
        UPDATE storage_uses SET bytes = bytes + difference WHERE user_id = owner;
    END IF;
END
$$;
