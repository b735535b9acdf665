-- The database of release 1.0.0, as pg_dump writes it. This text never changes: see CONTRIBUTING.md.
--
-- Rows that are deleted or changed all the time are vacuumed early, since each index scan looks at
-- dead ones. Tables that only grow keep the server's settings. A fillfactor leaves room in each page
-- for rows that change again and again, mostly in columns that no index has: the new version of a row
-- stays in its page, where the next one takes its place without a vacuum.
--
-- Triggers keep the foreign keys that are NOT ENFORCED: storage/schema/check_new_subscriptions.sql
-- says why.

-- A function may use what a later statement makes.
SET LOCAL check_function_bodies = off;

CREATE FUNCTION public.charge_storage(owner bigint, difference bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF difference > 0 THEN
        INSERT INTO storage_uses (user_id, bytes) VALUES (owner, difference)
        ON CONFLICT (user_id) DO UPDATE SET bytes = storage_uses.bytes + excluded.bytes;
    ELSIF difference < 0 THEN
        UPDATE storage_uses SET bytes = bytes + difference WHERE user_id = owner;
    END IF;
END
$$;

CREATE FUNCTION public.check_changed_subscription() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'public', 'pg_temp'
    AS $$
BEGIN
    IF NEW.list_id IS DISTINCT FROM OLD.list_id AND NEW.list_id IS NOT NULL THEN
        PERFORM FROM lists WHERE id = NEW.list_id FOR KEY SHARE;
        IF NOT FOUND THEN
            RAISE foreign_key_violation USING TABLE = 'subscriptions',
                CONSTRAINT = 'fk_subscriptions_list_id', COLUMN = 'list_id',
                MESSAGE = 'a subscription refers to a row of lists that is not there';
        END IF;
    END IF;
    IF NEW.user_id IS DISTINCT FROM OLD.user_id AND NEW.user_id IS NOT NULL THEN
        PERFORM FROM users WHERE id = NEW.user_id FOR KEY SHARE;
        IF NOT FOUND THEN
            RAISE foreign_key_violation USING TABLE = 'subscriptions',
                CONSTRAINT = 'fk_subscriptions_user_id', COLUMN = 'user_id',
                MESSAGE = 'a subscription refers to a row of users that is not there';
        END IF;
    END IF;
    IF NEW.import_id IS DISTINCT FROM OLD.import_id AND NEW.import_id IS NOT NULL THEN
        PERFORM FROM imports WHERE id = NEW.import_id FOR KEY SHARE;
        IF NOT FOUND THEN
            RAISE foreign_key_violation USING TABLE = 'subscriptions',
                CONSTRAINT = 'fk_subscriptions_import_id', COLUMN = 'import_id',
                MESSAGE = 'a subscription refers to a row of imports that is not there';
        END IF;
    END IF;
    RETURN NULL;
END
$$;

CREATE FUNCTION public.check_left_imports() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'public', 'pg_temp'
    AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND NEW.id = OLD.id THEN
        RETURN NULL;
    END IF;
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE feature_not_supported
            USING MESSAGE = 'rows of imports are deleted in read committed transactions only';
    END IF;
    PERFORM FROM subscriptions WHERE import_id = OLD.id LIMIT 1 FOR KEY SHARE;
    IF FOUND THEN
        RAISE foreign_key_violation USING TABLE = 'subscriptions',
            CONSTRAINT = 'fk_subscriptions_import_id',
            MESSAGE = 'a subscription refers to the row of imports';
    END IF;
    RETURN NULL;
END
$$;

CREATE FUNCTION public.check_left_lists() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'public', 'pg_temp'
    AS $$
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

CREATE FUNCTION public.check_left_users() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'public', 'pg_temp'
    AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND NEW.id = OLD.id THEN
        RETURN NULL;
    END IF;
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE feature_not_supported
            USING MESSAGE = 'rows of users are deleted in read committed transactions only';
    END IF;
    PERFORM FROM subscriptions WHERE user_id = OLD.id LIMIT 1 FOR KEY SHARE;
    IF FOUND THEN
        RAISE foreign_key_violation USING TABLE = 'subscriptions',
            CONSTRAINT = 'fk_subscriptions_user_id',
            MESSAGE = 'a subscription refers to the row of users';
    END IF;
    RETURN NULL;
END
$$;

CREATE FUNCTION public.check_new_subscriptions() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'public', 'pg_temp'
    AS $$
DECLARE
    missing bigint;
BEGIN
    SELECT count(*) - count(held.id) INTO missing
    FROM (SELECT DISTINCT list_id FROM after_it) AS referred
    LEFT JOIN LATERAL (
        SELECT id FROM lists WHERE id = referred.list_id FOR KEY SHARE OFFSET 0
    ) AS held ON true;
    IF missing > 0 THEN
        RAISE foreign_key_violation USING TABLE = 'subscriptions',
            CONSTRAINT = 'fk_subscriptions_list_id', COLUMN = 'list_id',
            MESSAGE = 'a subscription refers to a row of lists that is not there';
    END IF;
    SELECT count(*) - count(held.id) INTO missing
    FROM (SELECT user_id FROM after_it) AS referred
    LEFT JOIN LATERAL (
        SELECT id FROM users WHERE id = referred.user_id FOR KEY SHARE OFFSET 0
    ) AS held ON true;
    IF missing > 0 THEN
        RAISE foreign_key_violation USING TABLE = 'subscriptions',
            CONSTRAINT = 'fk_subscriptions_user_id', COLUMN = 'user_id',
            MESSAGE = 'a subscription refers to a row of users that is not there';
    END IF;
    SELECT count(*) - count(held.id) INTO missing
    FROM (SELECT DISTINCT import_id FROM after_it WHERE import_id IS NOT NULL) AS referred
    LEFT JOIN LATERAL (
        SELECT id FROM imports WHERE id = referred.import_id FOR KEY SHARE OFFSET 0
    ) AS held ON true;
    IF missing > 0 THEN
        RAISE foreign_key_violation USING TABLE = 'subscriptions',
            CONSTRAINT = 'fk_subscriptions_import_id', COLUMN = 'import_id',
            MESSAGE = 'a subscription refers to a row of imports that is not there';
    END IF;
    RETURN NULL;
END
$$;

CREATE FUNCTION public.count_stored_attachments() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
DECLARE
    owner bigint;
    difference bigint := 0;
BEGIN
    IF TG_OP <> 'INSERT' THEN
        owner := OLD.user_id;
        difference := -(
            CASE OLD.status
                WHEN 2 THEN OLD.size + coalesce((
                    SELECT sum((each ->> 'size')::bigint)
                    FROM jsonb_array_elements(OLD.renditions) AS each), 0)
                WHEN 3 THEN 0
                ELSE OLD.original_size
            END);
    END IF;
    IF TG_OP <> 'DELETE' THEN
        owner := NEW.user_id;
        difference := difference + (
            CASE NEW.status
                WHEN 2 THEN NEW.size + coalesce((
                    SELECT sum((each ->> 'size')::bigint)
                    FROM jsonb_array_elements(NEW.renditions) AS each), 0)
                WHEN 3 THEN 0
                ELSE NEW.original_size
            END);
    END IF;
    PERFORM charge_storage(owner, difference);
    RETURN NULL;
END
$$;

CREATE FUNCTION public.count_stored_deliveries() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
DECLARE
    owner bigint;
    difference bigint := 0;
BEGIN
    IF coalesce(NEW.person_id, OLD.person_id) IS NOT NULL THEN
        RETURN NULL;
    END IF;
    IF TG_OP <> 'INSERT' THEN
        difference := - row_bytes(NULL) - coalesce(octet_length(OLD.answer), 0);
    END IF;
    IF TG_OP <> 'DELETE' THEN
        difference := difference + row_bytes(NULL) + coalesce(octet_length(NEW.answer), 0);
    END IF;
    IF difference <> 0 THEN
        SELECT user_id INTO owner FROM webhook_endpoints
        WHERE id = coalesce(NEW.endpoint_id, OLD.endpoint_id);
        PERFORM charge_storage(owner, difference);
    END IF;
    RETURN NULL;
END
$$;

CREATE FUNCTION public.count_stored_exports() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
DECLARE
    owner bigint;
    difference bigint := 0;
BEGIN
    IF TG_OP <> 'INSERT' AND OLD.kind = 'members' THEN
        owner := OLD.user_id;
        difference := - row_bytes(OLD.filter::text) - (
            CASE WHEN OLD.files_removed_at IS NULL THEN coalesce(OLD.size, 0) ELSE 0 END);
    END IF;
    IF TG_OP <> 'DELETE' AND NEW.kind = 'members' THEN
        owner := NEW.user_id;
        difference := difference + row_bytes(NEW.filter::text) + (
            CASE WHEN NEW.files_removed_at IS NULL THEN coalesce(NEW.size, 0) ELSE 0 END);
    END IF;
    PERFORM charge_storage(owner, difference);
    RETURN NULL;
END
$$;

CREATE FUNCTION public.count_stored_filters() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
DECLARE
    owner bigint;
    difference bigint := 0;
BEGIN
    SELECT user_id INTO owner FROM lists WHERE id = coalesce(NEW.list_id, OLD.list_id);
    IF TG_OP <> 'INSERT' THEN
        difference := - row_bytes(OLD.filter::text);
    END IF;
    IF TG_OP <> 'DELETE' THEN
        difference := difference + row_bytes(NEW.filter::text);
    END IF;
    PERFORM charge_storage(owner, difference);
    RETURN NULL;
END
$$;

CREATE FUNCTION public.count_stored_imports() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
DECLARE
    owner bigint;
    difference bigint := 0;
BEGIN
    IF TG_OP <> 'INSERT' THEN
        owner := OLD.user_id;
        difference := -(
            CASE WHEN OLD.finished_at IS NULL THEN OLD.size + OLD.chunk_bytes ELSE 0 END);
    END IF;
    IF TG_OP <> 'DELETE' THEN
        owner := NEW.user_id;
        difference := difference + (
            CASE WHEN NEW.finished_at IS NULL THEN NEW.size + NEW.chunk_bytes ELSE 0 END);
    END IF;
    PERFORM charge_storage(owner, difference);
    RETURN NULL;
END
$$;

CREATE FUNCTION public.count_subscribers() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        WITH noted AS (
            INSERT INTO member_day_deltas
                (list_id, day, source, type, joined, gone, moved_in, moved_out)
            SELECT list_id, (now() AT TIME ZONE 'UTC')::date, source, type, count(*), 0, 0, 0
            FROM after_it WHERE status = 'active' GROUP BY list_id, source, type
            RETURNING list_id, joined
        )
        INSERT INTO subscriber_deltas (list_id, active)
        SELECT list_id, sum(joined) FROM noted GROUP BY list_id;
    ELSIF TG_OP = 'DELETE' THEN
        WITH noted AS (
            INSERT INTO member_day_deltas
                (list_id, day, source, type, joined, gone, moved_in, moved_out)
            SELECT list_id, (now() AT TIME ZONE 'UTC')::date, source, type, 0, count(*), 0, 0
            FROM before_it WHERE status = 'active' GROUP BY list_id, source, type
            RETURNING list_id, gone
        )
        INSERT INTO subscriber_deltas (list_id, active)
        SELECT list_id, -sum(gone) FROM noted GROUP BY list_id;
    ELSE
        WITH noted AS (
            INSERT INTO member_day_deltas
                (list_id, day, source, type, joined, gone, moved_in, moved_out)
            SELECT list_id, (now() AT TIME ZONE 'UTC')::date, source, type,
                count(*) FILTER (WHERE is_after AND is_alone),
                count(*) FILTER (WHERE NOT is_after AND is_alone),
                count(*) FILTER (WHERE is_after AND NOT is_alone),
                count(*) FILTER (WHERE NOT is_after AND NOT is_alone)
            FROM (
                SELECT list_id, source, type, is_after, count(*) OVER same = 1 AS is_alone,
                    min(type) OVER same <> max(type) OVER same AS has_moved
                FROM (
                    SELECT id, list_id, source, type, true AS is_after
                    FROM after_it WHERE status = 'active'
                    UNION ALL
                    SELECT id, list_id, source, type, false
                    FROM before_it WHERE status = 'active'
                ) AS either
                WINDOW same AS (PARTITION BY id)
            ) AS changed
            WHERE is_alone OR has_moved
            GROUP BY list_id, source, type
            RETURNING list_id, joined - gone AS difference
        )
        INSERT INTO subscriber_deltas (list_id, active)
        SELECT list_id, sum(difference) FROM noted
        GROUP BY list_id HAVING sum(difference) <> 0;
    END IF;
    RETURN NULL;
END
$$;

CREATE TABLE public.credit_entries (
    id bigint NOT NULL,
    user_id bigint NOT NULL,
    seq bigint NOT NULL,
    order_id bigint,
    action character varying NOT NULL,
    amount numeric(15,4) NOT NULL,
    delta numeric(15,4) NOT NULL,
    balance_after numeric(15,4) NOT NULL,
    rate_usd_to_credit numeric(15,4),
    currency character varying,
    source_type character varying NOT NULL,
    source_id character varying NOT NULL,
    meta jsonb,
    hash bytea NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT ck_credit_entries_action_known CHECK ((action IN ('topup', 'consume', 'consume_reversal', 'topup_refund', 'grant', 'adjust', 'debt_payment'))),
    CONSTRAINT ck_credit_entries_amount_positive CHECK ((amount > (0)::numeric)),
    CONSTRAINT ck_credit_entries_delta_is_signed_amount CHECK (((abs(delta) = amount) OR (delta = (0)::numeric))),
    CONSTRAINT ck_credit_entries_never_negative CHECK ((balance_after >= (0)::numeric)),
    CONSTRAINT ck_credit_entries_seq_positive CHECK ((seq > 0))
);

CREATE FUNCTION public.credit_append(p_user_id bigint, p_action text, p_amount numeric, p_delta numeric, p_source_type text, p_source_id text, p_meta jsonb, p_order_id bigint, p_rate numeric, p_currency text) RETURNS SETOF public.credit_entries
    LANGUAGE plpgsql
    AS $$
DECLARE
    account credit_accounts;
    entry credit_entries;
    runs_low boolean;
BEGIN
    SELECT * INTO account FROM credit_accounts WHERE user_id = p_user_id FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        IF p_delta < 0 THEN
            RETURN;
        END IF;
        INSERT INTO credit_accounts (user_id, last_hash) VALUES (p_user_id, sha256(''))
        ON CONFLICT (user_id) DO NOTHING;
        SELECT * INTO account FROM credit_accounts WHERE user_id = p_user_id FOR NO KEY UPDATE;
    END IF;
    IF account.balance + p_delta < 0 THEN
        RETURN;
    END IF;
    entry.user_id := p_user_id;
    entry.seq := account.last_seq + 1;
    entry.order_id := p_order_id;
    entry.action := p_action;
    entry.amount := p_amount;
    entry.delta := p_delta;
    entry.balance_after := account.balance + p_delta;
    entry.rate_usd_to_credit := p_rate;
    entry.currency := p_currency;
    entry.source_type := p_source_type;
    entry.source_id := p_source_id;
    entry.meta := p_meta;
    entry.created_at := clock_timestamp();
    entry.hash := credit_entry_hash(account.last_hash, entry);
    INSERT INTO credit_entries (user_id, seq, order_id, action, amount, delta, balance_after,
        rate_usd_to_credit, currency, source_type, source_id, meta, hash, created_at)
    VALUES (entry.user_id, entry.seq, entry.order_id, entry.action, entry.amount, entry.delta,
        entry.balance_after, entry.rate_usd_to_credit, entry.currency, entry.source_type,
        entry.source_id, entry.meta, entry.hash, entry.created_at)
    RETURNING id INTO entry.id;
    runs_low := account.balance >= account.low_below AND entry.balance_after < account.low_below;
    UPDATE credit_accounts SET balance = entry.balance_after, last_seq = entry.seq,
        last_hash = entry.hash, updated_at = entry.created_at,
        low_told = CASE
            WHEN p_delta > 0 AND p_action <> 'consume_reversal' AND entry.balance_after >= low_below
                THEN false
            ELSE low_told OR runs_low
        END
    WHERE user_id = p_user_id;
    IF runs_low AND NOT account.low_told THEN
        INSERT INTO feed_events (user_id, type, subject_id, data)
        VALUES (p_user_id, 'credits.low', account.id, jsonb_build_object(
            'balance_credit', entry.balance_after, 'below', account.low_below));
    END IF;
    RETURN NEXT entry;
END
$$;

CREATE FUNCTION public.credit_consume(p_user_id bigint, p_key_id bigint, p_amount numeric, p_source_id text, p_meta jsonb, p_route text, p_key text, p_fingerprint bytea) RETURNS TABLE(outcome text, answer text)
    LANGUAGE plpgsql
    AS $$
DECLARE
    known record;
    entry credit_entries;
    said jsonb;
BEGIN
    IF p_key_id IS NOT NULL THEN
        PERFORM 1 FROM api_keys AS k JOIN users AS u ON u.id = k.user_id
        WHERE k.id = p_key_id AND k.user_id = p_user_id AND k.revoked_at IS NULL
            AND (k.expires_at IS NULL OR k.expires_at > now()) AND u.erased_at IS NULL;
        IF NOT FOUND THEN
            RETURN;
        END IF;
    END IF;
    IF p_key IS NOT NULL THEN
        PERFORM 1 FROM credit_accounts WHERE user_id = p_user_id FOR NO KEY UPDATE;
        IF NOT FOUND THEN
            RETURN QUERY SELECT 'insufficient', NULL::text;
            RETURN;
        END IF;
        SELECT r.fingerprint, r.answer INTO known FROM idempotency_records AS r
        WHERE r.caller_id = p_user_id AND r.route = p_route AND r.key = p_key
            AND r.expires_at > now();
        IF FOUND THEN
            RETURN QUERY SELECT
                CASE WHEN known.fingerprint = p_fingerprint THEN 'replayed' ELSE 'key_reused' END,
                (known.answer -> 'data')::text;
            RETURN;
        END IF;
    END IF;
    SELECT * INTO entry FROM credit_append(
        p_user_id, 'consume', p_amount, -p_amount, 'consume', p_source_id, p_meta, NULL, NULL, NULL
    );
    IF entry.id IS NULL THEN
        RETURN QUERY SELECT 'insufficient', NULL::text;
        RETURN;
    END IF;
    said := credit_entry_json(entry);
    IF p_key IS NOT NULL THEN
        INSERT INTO idempotency_records (caller_id, route, key, fingerprint, answer)
        VALUES (p_user_id, p_route, p_key, p_fingerprint, jsonb_build_object('data', said))
        ON CONFLICT (caller_id, route, key) DO UPDATE SET fingerprint = excluded.fingerprint,
            answer = excluded.answer, job_id = NULL, created_at = now(),
            expires_at = now() + interval '24 hours';
    END IF;
    RETURN QUERY SELECT 'done', said::text;
END
$$;

CREATE FUNCTION public.credit_entry_hash(before bytea, e public.credit_entries) RETURNS bytea
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    SELECT sha256(before || convert_to(jsonb_build_array(
        e.user_id, e.seq, e.order_id, e.action, e.amount::text, e.delta::text,
        e.balance_after::text, e.rate_usd_to_credit::text, e.currency, e.source_type, e.source_id,
        e.meta, (extract(epoch FROM e.created_at) * 1000000)::bigint
    )::text, 'UTF8'))
$$;

CREATE FUNCTION public.credit_entry_json(e public.credit_entries) RETURNS jsonb
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$
    SELECT jsonb_build_object(
        'id', e.id, 'seq', e.seq, 'user_id', e.user_id, 'order_id', e.order_id,
        'action', e.action, 'amount_credit', e.amount, 'delta_credit', e.delta,
        'balance_after', e.balance_after, 'rate_usd_to_credit', e.rate_usd_to_credit,
        'currency', e.currency, 'source_type', e.source_type, 'source_id', e.source_id,
        'meta', e.meta, 'created_at',
        to_char(e.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))
$$;

CREATE FUNCTION public.credit_give(p_user_id bigint, p_action text, p_amount numeric, p_source_type text, p_source_id text, p_meta jsonb, p_order_id bigint, p_rate numeric, p_currency text) RETURNS void
    LANGUAGE plpgsql
    AS $$
DECLARE
    paid numeric;
BEGIN
    PERFORM credit_append(p_user_id, p_action, p_amount, p_amount, p_source_type,
        p_source_id, p_meta, p_order_id, p_rate, p_currency);
    SELECT least(debt, p_amount) INTO paid FROM credit_accounts WHERE user_id = p_user_id;
    IF paid > 0 THEN
        PERFORM credit_append(p_user_id, 'debt_payment', paid, -paid, p_source_type,
            p_source_id, NULL, p_order_id, p_rate, p_currency);
        UPDATE credit_accounts SET debt = debt - paid WHERE user_id = p_user_id;
    END IF;
END
$$;

CREATE FUNCTION public.credit_reverse(p_entry_id bigint, p_taken_by text) RETURNS numeric
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION public.credit_take(p_user_id bigint, p_amount numeric, p_source_type text, p_order_id bigint, p_rate numeric, p_currency text) RETURNS void
    LANGUAGE plpgsql
    AS $$
DECLARE
    part numeric;
BEGIN
    SELECT least(balance, p_amount) INTO STRICT part FROM credit_accounts
    WHERE user_id = p_user_id FOR NO KEY UPDATE;
    IF part > 0 THEN
        PERFORM credit_append(p_user_id, 'topup_refund', part, -part, p_source_type,
            p_order_id::text, NULL, p_order_id, p_rate, p_currency);
    END IF;
    IF part < p_amount THEN
        PERFORM credit_append(p_user_id, 'topup_refund', p_amount - part, 0, p_source_type,
            p_order_id::text, NULL, p_order_id, p_rate, p_currency);
        UPDATE credit_accounts SET debt = debt + p_amount - part WHERE user_id = p_user_id;
    END IF;
END
$$;

CREATE FUNCTION public.delete_deliveries() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    DELETE FROM webhook_deliveries WHERE endpoint_id = OLD.id;
    RETURN OLD;
END
$$;

CREATE FUNCTION public.erase_consent(people bigint[], most integer) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'public', 'pg_temp'
    AS $$
DECLARE
    gone bigint[] := ARRAY(
        SELECT person FROM unnest(people) AS person WHERE NOT EXISTS (
            SELECT FROM users WHERE id = person AND erased_at IS NULL));
    entries bigint;
    claims bigint;
    wordings bigint;
BEGIN
    -- For an empty array Postgres would read all of the smallest index.
    IF cardinality(gone) = 0 THEN
        RETURN 0;
    END IF;
    DELETE FROM consent_entries WHERE id = ANY(ARRAY(
        SELECT id FROM consent_entries WHERE user_id = ANY(gone) LIMIT most));
    GET DIAGNOSTICS entries = ROW_COUNT;
    DELETE FROM consent_claims WHERE ctid = ANY(ARRAY(
        SELECT claim.place FROM subscriptions AS m CROSS JOIN LATERAL (
            SELECT ctid AS place FROM consent_claims
            WHERE subscription_id = m.id OFFSET 0 FOR UPDATE
        ) AS claim
        WHERE m.user_id = ANY(gone) LIMIT most));
    GET DIAGNOSTICS claims = ROW_COUNT;
    UPDATE consent_wordings SET wording = 'Erased' WHERE ctid = ANY(ARRAY(
        SELECT version.place FROM lists AS l CROSS JOIN LATERAL (
            SELECT ctid AS place FROM consent_wordings
            WHERE list_id = l.id AND wording <> 'Erased' OFFSET 0 FOR UPDATE
        ) AS version
        WHERE l.user_id = ANY(gone) LIMIT most));
    GET DIAGNOSTICS wordings = ROW_COUNT;
    RETURN entries + claims + wordings;
END
$$;

CREATE FUNCTION public.feed_place() RETURNS bigint
    LANGUAGE sql
    SET search_path TO 'public', 'pg_temp'
    AS $$
    SELECT places + pg_current_xact_id()::text::bigint FROM feed_offsets
$$;

CREATE FUNCTION public.guard_payment_order() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION public.is_abandoned_order(wanted bigint) RETURNS boolean
    LANGUAGE sql STABLE
    SET search_path TO 'public', 'pg_temp'
    AS $$
    SELECT EXISTS (
        SELECT FROM payment_orders
        WHERE id = wanted AND created_at < now() - interval '90 days'
            AND status IN ('created', 'pending', 'failed', 'expired') AND next_check_at IS NULL
            AND user_id IS NULL AND claimed_at IS NULL AND paid_at IS NULL
            AND refunded_minor = 0 AND dispute IS NULL AND mismatch IS NULL AND credited = 0
    )
$$;

CREATE FUNCTION public.keep_events() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'public', 'pg_temp'
    AS $$
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

CREATE FUNCTION public.keep_payment_history() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'public', 'pg_temp'
    AS $$
DECLARE
    wanted bigint;
BEGIN
    IF TG_TABLE_NAME = 'payment_orders' THEN
        wanted := OLD.id;
    ELSE
        wanted := OLD.order_id;
    END IF;
    IF is_abandoned_order(wanted) THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'what happened to orders is never changed or deleted'
        USING ERRCODE = 'restrict_violation';
END
$$;

CREATE FUNCTION public.network_of_ip(ip text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'public', 'pg_temp'
    AS $$
BEGIN
    -- Not in one expression, whose parts may be computed before the condition is.
    IF NOT pg_input_is_valid(ip, 'inet') THEN
        RETURN NULL;
    END IF;
    RETURN text(network(
        set_masklen(ip::inet, CASE family(ip::inet) WHEN 4 THEN 24 ELSE 48 END)));
END
$$;

CREATE FUNCTION public.note_erasure() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'public', 'pg_temp'
    AS $$
BEGIN
    INSERT INTO departures (kind, user_id) VALUES ('erased', NEW.id);
    RETURN NULL;
END
$$;

CREATE FUNCTION public.note_opt_outs() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'public', 'pg_temp'
    AS $$
BEGIN
    INSERT INTO departures (kind, list_id, user_id, address_hmac, source)
    SELECT kind, list_id, user_id, address_hmac, source FROM added;
    RETURN NULL;
END
$$;

CREATE FUNCTION public.note_payment_order_change() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO payment_order_changes (order_id, from_status, to_status, via)
        VALUES (NEW.id, NULL, NEW.status, NEW.changed_via);
    ELSIF NEW.status <> OLD.status THEN
        INSERT INTO payment_order_changes (order_id, from_status, to_status, via)
        VALUES (NEW.id, OLD.status, NEW.status, NEW.changed_via);
    END IF;
    RETURN NULL;
END
$$;

CREATE FUNCTION public.purge_events(most integer, days integer) RETURNS bigint
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'public', 'pg_temp'
    AS $$
    WITH purged AS (
        DELETE FROM events WHERE ctid = ANY(ARRAY(
            SELECT ctid FROM events
            WHERE occurred_at < now() - interval '1 year'
                AND occurred_at < now() - make_interval(days => days)
            ORDER BY occurred_at LIMIT most FOR UPDATE SKIP LOCKED
        )) RETURNING 1
    )
    SELECT count(*) FROM purged
$$;

CREATE FUNCTION public.purge_feed_events(most integer, days integer) RETURNS bigint
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'public', 'pg_temp'
    AS $$
    WITH purged AS (
        DELETE FROM feed_events WHERE ctid = ANY(ARRAY(
            SELECT ctid FROM feed_events ORDER BY id LIMIT most
        ))
            AND occurred_at < now() - interval '30 days'
            AND occurred_at < now() - make_interval(days => days)
        RETURNING 1
    )
    SELECT count(*) FROM purged
$$;

CREATE FUNCTION public.raise_feed_places() RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'public', 'pg_temp'
    AS $$
DECLARE
    raised bigint;
BEGIN
    UPDATE feed_offsets SET places = greatest(
        places,
        (extract(epoch FROM clock_timestamp()) * 1048576)::bigint
            - pg_current_xact_id()::text::bigint
    ) RETURNING places INTO raised;
    PERFORM setval('feed_events_id_seq', last_value + 1000000000) FROM feed_events_id_seq;
    RETURN raised;
END
$$;

CREATE FUNCTION public.refuse_ledger_changes() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    RAISE EXCEPTION 'entries of the ledger are never changed or deleted'
        USING ERRCODE = 'restrict_violation';
END
$$;

CREATE FUNCTION public.refuse_payment_history_changes() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    RAISE EXCEPTION 'what happened to orders is never changed or deleted'
        USING ERRCODE = 'restrict_violation';
END
$$;

CREATE FUNCTION public.row_bytes(longest text) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    SELECT 500 + coalesce(octet_length(longest), 0)
$$;

CREATE FUNCTION public.shorten_consent_ips(days integer, most integer) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'public', 'pg_temp'
    AS $$
DECLARE
    due timestamptz := now() - make_interval(days => greatest(days, 1));
    entries bigint;
    claims bigint;
BEGIN
    UPDATE consent_entries SET ip = network_of_ip(ip) WHERE ctid = ANY(ARRAY(
        SELECT ctid FROM consent_entries WHERE strpos(ip, '/') = 0 AND occurred_at < due
        ORDER BY occurred_at LIMIT most FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS entries = ROW_COUNT;
    UPDATE consent_claims SET ip = network_of_ip(ip) WHERE ctid = ANY(ARRAY(
        SELECT ctid FROM consent_claims WHERE strpos(ip, '/') = 0 AND occurred_at < due
        ORDER BY occurred_at LIMIT most FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS claims = ROW_COUNT;
    RETURN entries + claims;
END
$$;

CREATE FUNCTION public.take_back_claims(of_import bigint, most integer) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'public', 'pg_temp'
    AS $$
DECLARE
    taken bigint;
BEGIN
    IF NOT EXISTS (SELECT FROM imports WHERE id = of_import AND undo_job_id IS NOT NULL) THEN
        RAISE EXCEPTION 'the claims of an import stay until it is undone'
            USING ERRCODE = 'restrict_violation';
    END IF;
    -- A range, not a join: the plan of a join would rely on statistics of a new import.
    DELETE FROM consent_claims WHERE import_id = of_import AND subscription_id <= (
        SELECT max(subscription_id) FROM (
            SELECT subscription_id FROM consent_claims WHERE import_id = of_import
            ORDER BY subscription_id LIMIT most) AS first_ones);
    GET DIAGNOSTICS taken = ROW_COUNT;
    RETURN taken;
END
$$;

CREATE TABLE public.account_mails (
    id bigint NOT NULL,
    kind character varying NOT NULL,
    email character varying NOT NULL,
    user_id bigint,
    detail character varying,
    list_id bigint,
    language character varying,
    source_digest bytea,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    admitted_at timestamp with time zone,
    sent_at timestamp with time zone
)
WITH (autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_threshold='1000');

ALTER TABLE public.account_mails ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME public.account_mails_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.api_keys (
    id bigint NOT NULL,
    user_id bigint NOT NULL,
    name character varying NOT NULL,
    secret_hmac bytea NOT NULL,
    last_four character varying NOT NULL,
    scopes text[],
    maker_id bigint,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    expires_at timestamp with time zone,
    expiry_told_at timestamp with time zone,
    last_used_at timestamp with time zone,
    revoked_at timestamp with time zone,
    CONSTRAINT ck_api_keys_hmac_length CHECK ((octet_length(secret_hmac) = 32))
);

ALTER TABLE public.api_keys ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME public.api_keys_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.attachments (
    id bigint NOT NULL,
    user_id bigint NOT NULL,
    hash_id character varying NOT NULL COLLATE pg_catalog."C",
    status smallint NOT NULL,
    encrypted boolean NOT NULL,
    wrapped_key bytea,
    wrapped_by character varying,
    mime_type character varying NOT NULL,
    filename character varying NOT NULL COLLATE pg_catalog."C",
    size bigint NOT NULL,
    checksum character varying NOT NULL,
    width bigint,
    height bigint,
    frames bigint,
    blurhash character varying,
    original_filename character varying NOT NULL,
    original_mime_type character varying NOT NULL,
    original_size bigint NOT NULL,
    original_checksum character varying NOT NULL,
    renditions jsonb,
    alt_text character varying,
    title character varying,
    tags text[] DEFAULT '{}'::text[] NOT NULL,
    error jsonb,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT ck_attachments_key_when_encrypted CHECK ((encrypted = (wrapped_key IS NOT NULL))),
    CONSTRAINT ck_attachments_ready_is_whole CHECK (((status <> 2) OR ((size > 0) AND ((checksum)::text ~ '^[0-9a-f]{64}$'::text) AND (width > 0) AND (height > 0)))),
    CONSTRAINT ck_attachments_status_known CHECK (((status >= 0) AND (status <= 3)))
);

ALTER TABLE public.attachments ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME public.attachments_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.bulk_actions (
    id bigint NOT NULL,
    list_id bigint NOT NULL,
    user_id bigint NOT NULL,
    filter jsonb NOT NULL,
    action character varying NOT NULL,
    tag_id bigint,
    type character varying,
    status character varying DEFAULT 'running'::character varying NOT NULL,
    reached_status character varying,
    reached_id bigint,
    seen bigint DEFAULT '0'::bigint NOT NULL,
    matched bigint DEFAULT '0'::bigint NOT NULL,
    changed bigint DEFAULT '0'::bigint NOT NULL,
    undo_job_id bigint,
    undo_reached_id bigint,
    undone bigint DEFAULT '0'::bigint NOT NULL,
    undone_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    finished_at timestamp with time zone,
    CONSTRAINT ck_bulk_actions_action_known CHECK ((action IN ('tag', 'untag', 'remove', 'set_type', 'email_off'))),
    CONSTRAINT ck_bulk_actions_status_known CHECK ((status IN ('running', 'succeeded', 'failed', 'cancelled')))
);

ALTER TABLE public.bulk_actions ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME public.bulk_actions_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.bulk_changes (
    bulk_id bigint NOT NULL,
    subscription_id bigint NOT NULL,
    applied_at timestamp with time zone NOT NULL,
    updated_at_before timestamp with time zone NOT NULL,
    status_before character varying NOT NULL,
    type_before character varying NOT NULL,
    paid_expiry_before timestamp with time zone,
    paid_expiry_after timestamp with time zone
)
WITH (autovacuum_vacuum_scale_factor='0.02');

CREATE TABLE public.composer_uses (
    user_id bigint NOT NULL,
    day date NOT NULL,
    calls bigint NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_threshold='1000', fillfactor='80');

CREATE TABLE public.consent_claims (
    import_id bigint NOT NULL,
    subscription_id bigint NOT NULL,
    how character varying NOT NULL,
    occurred_at timestamp with time zone NOT NULL,
    ip character varying,
    url character varying,
    wording character varying,
    claimed_by character varying NOT NULL,
    of_list_id bigint,
    CONSTRAINT ck_consent_claims_claimed_by_bounded CHECK (((char_length((claimed_by)::text) >= 1) AND (char_length((claimed_by)::text) <= 100))),
    CONSTRAINT ck_consent_claims_how_known CHECK ((how IN ('form', 'confirmation', 'login', 'link', 'owner', 'import', 'transfer'))),
    CONSTRAINT ck_consent_claims_ip_bounded CHECK ((char_length((ip)::text) <= 50)),
    CONSTRAINT ck_consent_claims_url_bounded CHECK ((char_length((url)::text) <= 2048)),
    CONSTRAINT ck_consent_claims_wording_bounded CHECK ((char_length((wording)::text) <= 2000))
);

CREATE TABLE public.consent_entries (
    id bigint NOT NULL,
    list_id bigint NOT NULL,
    user_id bigint NOT NULL,
    how character varying NOT NULL,
    occurred_at timestamp with time zone DEFAULT now() NOT NULL,
    ip character varying,
    url character varying,
    browser character varying,
    wording_version bigint,
    of_list_id bigint,
    import_id bigint,
    CONSTRAINT ck_consent_entries_browser_bounded CHECK ((char_length((browser)::text) <= 100)),
    CONSTRAINT ck_consent_entries_how_known CHECK ((how IN ('form', 'confirmation', 'login', 'link', 'owner', 'import', 'transfer'))),
    CONSTRAINT ck_consent_entries_ip_bounded CHECK ((char_length((ip)::text) <= 50)),
    CONSTRAINT ck_consent_entries_url_bounded CHECK ((char_length((url)::text) <= 2048))
);

ALTER TABLE public.consent_entries ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME public.consent_entries_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.consent_wordings (
    list_id bigint NOT NULL,
    version bigint NOT NULL,
    wording character varying NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT ck_consent_wordings_wording_bounded CHECK ((char_length((wording)::text) <= 2000))
);

CREATE TABLE public.credit_accounts (
    id bigint NOT NULL,
    user_id bigint NOT NULL,
    balance numeric(15,4) DEFAULT 0 NOT NULL,
    debt numeric(15,4) DEFAULT 0 NOT NULL,
    low_below numeric(15,4) DEFAULT 100 NOT NULL,
    low_told boolean DEFAULT false NOT NULL,
    status character varying DEFAULT 'active'::character varying NOT NULL,
    last_seq bigint DEFAULT 0 NOT NULL,
    last_hash bytea NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT ck_credit_accounts_debt_never_negative CHECK ((debt >= (0)::numeric)),
    CONSTRAINT ck_credit_accounts_hash_length CHECK ((octet_length(last_hash) = 32)),
    CONSTRAINT ck_credit_accounts_never_negative CHECK ((balance >= (0)::numeric))
)
WITH (autovacuum_vacuum_scale_factor='0.05', fillfactor='80');

ALTER TABLE public.credit_accounts ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME public.credit_accounts_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.credit_checkpoints (
    user_id bigint NOT NULL,
    seq bigint NOT NULL,
    hash bytea NOT NULL,
    balance numeric(15,4) NOT NULL,
    debt numeric(15,4) NOT NULL,
    is_suspect boolean DEFAULT false NOT NULL,
    signature character varying NOT NULL
);

ALTER TABLE public.credit_entries ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME public.credit_entries_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.deleted_tags (
    list_id bigint NOT NULL,
    id bigint NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL
);

CREATE TABLE public.denied_entries (
    user_id bigint NOT NULL,
    entry character varying NOT NULL
);

CREATE TABLE public.departures (
    id bigint NOT NULL,
    kind character varying NOT NULL,
    list_id bigint,
    user_id bigint,
    address_hmac bytea,
    source character varying,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT ck_departures_kind_known CHECK ((kind IN ('list', 'email', 'erased')))
)
WITH (autovacuum_vacuum_scale_factor='0.01');

ALTER TABLE public.departures ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME public.departures_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.erasures (
    user_id bigint NOT NULL,
    job_id bigint NOT NULL,
    address_hmac bytea,
    stage character varying,
    bookmark bigint,
    counts jsonb DEFAULT '{}'::jsonb NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    finished_at timestamp with time zone,
    CONSTRAINT ck_erasures_hmac_length CHECK ((octet_length(address_hmac) = 32))
);

CREATE TABLE public.events (
    id bigint NOT NULL,
    user_id bigint NOT NULL,
    type character varying NOT NULL,
    occurred_at timestamp with time zone DEFAULT now() NOT NULL,
    ip character varying,
    user_agent character varying,
    credential_kind character varying,
    credential_id bigint,
    detail jsonb DEFAULT '{}'::jsonb NOT NULL,
    CONSTRAINT ck_events_detail_bounded CHECK ((octet_length((detail)::text) <= 2000)),
    CONSTRAINT ck_events_user_agent_bounded CHECK ((char_length((user_agent)::text) <= 300))
);

ALTER TABLE public.events ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME public.events_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.exports (
    id bigint NOT NULL,
    list_id bigint NOT NULL,
    user_id bigint NOT NULL,
    kind character varying NOT NULL,
    filter jsonb,
    statuses text[],
    format character varying DEFAULT 'csv'::character varying NOT NULL,
    date_order character varying,
    column_forms jsonb,
    by_operator boolean DEFAULT false NOT NULL,
    object_prefix character varying NOT NULL,
    wrapped_key bytea,
    wrapped_by character varying,
    size bigint,
    rows bigint,
    files_removed_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    finished_at timestamp with time zone,
    CONSTRAINT ck_exports_kind_known CHECK ((kind IN ('members', 'delivery')))
);

ALTER TABLE public.exports ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME public.exports_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.feed_events (
    id bigint NOT NULL,
    place bigint DEFAULT public.feed_place() NOT NULL,
    user_id bigint NOT NULL,
    type character varying NOT NULL,
    list_id bigint,
    subject_id bigint,
    data jsonb DEFAULT '{}'::jsonb NOT NULL,
    occurred_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT ck_feed_events_data_bounded CHECK ((octet_length((data)::text) <= 2000))
)
WITH (autovacuum_vacuum_scale_factor='0.02');

ALTER TABLE public.feed_events ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME public.feed_events_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.feed_offsets (
    id bigint NOT NULL,
    places bigint NOT NULL,
    CONSTRAINT ck_feed_offsets_one_row CHECK ((id = 1))
);

CREATE TABLE public.fields (
    id bigint NOT NULL,
    user_id bigint NOT NULL,
    key character varying NOT NULL,
    label character varying NOT NULL,
    description character varying,
    type character varying NOT NULL,
    choices text[] DEFAULT '{}'::text[] NOT NULL,
    is_public boolean DEFAULT false NOT NULL,
    retired_at timestamp with time zone,
    suspicious_words text[],
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT ck_fields_choices_of_choice CHECK ((((type)::text = 'choice'::text) = (cardinality(choices) > 0))),
    CONSTRAINT ck_fields_key_form CHECK (((key)::text ~ '^[a-z][a-z0-9_]{0,39}$'::text)),
    CONSTRAINT ck_fields_type_known CHECK ((type IN ('text', 'number', 'date', 'boolean', 'choice')))
);

ALTER TABLE public.fields ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME public.fields_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.former_addresses (
    email character varying NOT NULL,
    user_id bigint NOT NULL,
    left_at timestamp with time zone DEFAULT now() NOT NULL,
    shown character varying
);

CREATE TABLE public.idempotency_records (
    id bigint NOT NULL,
    caller_id bigint NOT NULL,
    route character varying NOT NULL,
    key character varying NOT NULL,
    fingerprint bytea NOT NULL,
    job_id bigint,
    answer jsonb,
    expires_at timestamp with time zone DEFAULT (now() + '24:00:00'::interval) NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT ck_idempotency_records_fingerprint_length CHECK ((octet_length(fingerprint) = 32)),
    CONSTRAINT ck_idempotency_records_job_or_answer CHECK (((job_id IS NULL) <> (answer IS NULL)))
)
WITH (autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_threshold='1000');

ALTER TABLE public.idempotency_records ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME public.idempotency_records_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.import_changes (
    import_id bigint NOT NULL,
    subscription_id bigint NOT NULL,
    activated boolean NOT NULL,
    applied_at timestamp with time zone NOT NULL,
    status_before character varying NOT NULL,
    name_before character varying,
    name_after character varying,
    type_before character varying NOT NULL,
    type_after character varying NOT NULL,
    paid_expiry_before timestamp with time zone,
    paid_expiry_after timestamp with time zone,
    fields_after jsonb,
    fields_before jsonb,
    tags_added bigint[],
    joined_at_before timestamp with time zone,
    joined_at_after timestamp with time zone,
    import_id_before bigint,
    imported_at_before timestamp with time zone,
    updated_at_before timestamp with time zone NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.02');

CREATE TABLE public.import_chunks (
    import_id bigint NOT NULL,
    number bigint NOT NULL,
    not_added bytea NOT NULL
);

CREATE TABLE public.imports (
    id bigint NOT NULL,
    list_id bigint NOT NULL,
    user_id bigint NOT NULL,
    source character varying NOT NULL,
    kind character varying DEFAULT 'members'::character varying NOT NULL,
    filename character varying,
    object_prefix character varying NOT NULL,
    wrapped_key bytea,
    wrapped_by character varying,
    size bigint NOT NULL,
    mapping jsonb,
    dry_run boolean DEFAULT false NOT NULL,
    on_existing character varying DEFAULT 'skip'::character varying NOT NULL,
    create_fields boolean DEFAULT false NOT NULL,
    date_order character varying,
    column_forms jsonb,
    by_operator boolean DEFAULT false NOT NULL,
    status character varying DEFAULT 'running'::character varying NOT NULL,
    error jsonb,
    description jsonb,
    columns jsonb,
    samples bytea,
    chunks bigint DEFAULT '0'::bigint NOT NULL,
    chunk_bytes bigint DEFAULT '0'::bigint NOT NULL,
    is_split boolean DEFAULT false NOT NULL,
    applied bigint DEFAULT '0'::bigint NOT NULL,
    side_by_side boolean DEFAULT false NOT NULL,
    received bigint DEFAULT '0'::bigint NOT NULL,
    added bigint DEFAULT '0'::bigint NOT NULL,
    already bigint DEFAULT '0'::bigint NOT NULL,
    opted_out bigint DEFAULT '0'::bigint NOT NULL,
    invalid bigint DEFAULT '0'::bigint NOT NULL,
    duplicate bigint DEFAULT '0'::bigint NOT NULL,
    denied bigint DEFAULT '0'::bigint NOT NULL,
    updated bigint DEFAULT '0'::bigint NOT NULL,
    left_out bigint DEFAULT '0'::bigint NOT NULL,
    over_quota bigint DEFAULT '0'::bigint NOT NULL,
    undo_job_id bigint,
    undo_restored bigint,
    undo_removed bigint,
    undone bigint DEFAULT '0'::bigint NOT NULL,
    kept bigint DEFAULT '0'::bigint NOT NULL,
    undone_at timestamp with time zone,
    files_removed_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    finished_at timestamp with time zone,
    CONSTRAINT ck_imports_date_order_known CHECK ((date_order IN ('dmy', 'mdy'))),
    CONSTRAINT ck_imports_kind_known CHECK ((kind IN ('members', 'suppressions', 'bounces', 'complaints'))),
    CONSTRAINT ck_imports_on_existing_known CHECK ((on_existing IN ('skip', 'update'))),
    CONSTRAINT ck_imports_source_known CHECK ((source IN ('members', 'file'))),
    CONSTRAINT ck_imports_status_known CHECK ((status IN ('running', 'succeeded', 'failed', 'cancelled')))
)
WITH (autovacuum_vacuum_scale_factor='0.05', fillfactor='80');

ALTER TABLE public.imports ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME public.imports_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.jobs (
    id bigint NOT NULL,
    kind character varying NOT NULL,
    queue character varying NOT NULL,
    user_id bigint,
    on_behalf_of bigint DEFAULT '0'::bigint NOT NULL,
    subject_id bigint,
    status character varying DEFAULT 'queued'::character varying NOT NULL,
    attempt bigint DEFAULT '0'::bigint NOT NULL,
    crashes bigint DEFAULT '0'::bigint NOT NULL,
    retries bigint DEFAULT '0'::bigint NOT NULL,
    failing_since timestamp with time zone,
    last_reason character varying,
    lease_expires_at timestamp with time zone,
    cancel_requested boolean DEFAULT false NOT NULL,
    run_at timestamp with time zone DEFAULT now() NOT NULL,
    send_after timestamp with time zone DEFAULT now() NOT NULL,
    sends bigint DEFAULT '0'::bigint NOT NULL,
    progress_done bigint DEFAULT '0'::bigint NOT NULL,
    progress_total bigint,
    result jsonb,
    error jsonb,
    request_id text,
    traceparent text,
    waiter character varying,
    version bigint DEFAULT '1'::bigint NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    started_at timestamp with time zone,
    finished_at timestamp with time zone,
    CONSTRAINT ck_jobs_finished_at_when_finished CHECK (((status IN ('succeeded', 'failed', 'cancelled')) = (finished_at IS NOT NULL))),
    CONSTRAINT ck_jobs_lease_while_running CHECK ((((status)::text = 'running'::text) = (lease_expires_at IS NOT NULL))),
    CONSTRAINT ck_jobs_queue_known CHECK ((queue IN ('request', 'photos', 'money', 'mail', 'webhooks', 'export', 'media', 'bulk', 'maintenance'))),
    CONSTRAINT ck_jobs_status_known CHECK ((status IN ('queued', 'running', 'succeeded', 'failed', 'cancelled')))
)
WITH (autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='1000');

ALTER TABLE public.jobs ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME public.jobs_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.list_reports (
    id bigint NOT NULL,
    list_id bigint NOT NULL,
    user_id bigint,
    network_digest bytea,
    created_at timestamp with time zone DEFAULT now() NOT NULL
);

ALTER TABLE public.list_reports ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME public.list_reports_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.lists (
    id bigint NOT NULL,
    user_id bigint NOT NULL,
    slug character varying NOT NULL,
    title character varying NOT NULL,
    tagline character varying,
    description character varying,
    avatar_image_url character varying,
    favicon_image_url character varying,
    email_channel_enabled boolean DEFAULT true NOT NULL,
    challenge_enabled boolean DEFAULT false NOT NULL,
    challenge_provider character varying,
    traces_revoked_through bigint,
    confirm_required boolean DEFAULT true NOT NULL,
    redirect_origins text[] DEFAULT '{}'::text[] NOT NULL,
    asked_field_ids bigint[],
    required_field_ids bigint[] DEFAULT '{}'::bigint[] NOT NULL,
    consent_wording_version bigint,
    colour character varying,
    logo_hash_id character varying,
    sender_name character varying,
    sign_up_text character varying,
    thanks_text character varying,
    confirmation_text character varying,
    suspicious_words text[],
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    archived_at timestamp with time zone,
    CONSTRAINT ck_lists_challenge_has_provider CHECK (((NOT challenge_enabled) OR (challenge_provider IS NOT NULL))),
    CONSTRAINT ck_lists_provider_known CHECK ((challenge_provider IN ('turnstile', 'hcaptcha', 'recaptcha'))),
    CONSTRAINT ck_lists_redirect_origins_few CHECK ((cardinality(redirect_origins) <= 10)),
    CONSTRAINT ck_lists_slug_form CHECK ((((slug)::text ~ '^[a-z0-9][a-z0-9-]{0,79}$'::text) AND ((slug)::text !~ '^[0-9]+$'::text)))
);

CREATE TABLE public.login_attempts (
    subject bytea NOT NULL,
    attempts bigint NOT NULL,
    paused_until timestamp with time zone NOT NULL,
    tried_at timestamp with time zone NOT NULL,
    source bytea,
    CONSTRAINT ck_login_attempts_hmac_length CHECK ((octet_length(subject) = 32))
)
WITH (autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_threshold='1000', fillfactor='80');

CREATE TABLE public.mail_counts (
    digest bytea NOT NULL,
    mails bigint NOT NULL,
    ends_at timestamp with time zone NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_threshold='1000');

CREATE TABLE public.mailed_links (
    id bigint NOT NULL,
    purpose character varying NOT NULL,
    user_id bigint,
    list_id bigint,
    email character varying,
    secret_hmac bytea NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    used_at timestamp with time zone,
    submitted jsonb,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT ck_mailed_links_about_somebody CHECK (((user_id IS NOT NULL) OR (email IS NOT NULL))),
    CONSTRAINT ck_mailed_links_hmac_length CHECK ((octet_length(secret_hmac) = 32))
)
WITH (autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_threshold='1000');

ALTER TABLE public.mailed_links ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME public.mailed_links_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.maintenance (
    name character varying NOT NULL,
    every_seconds bigint NOT NULL,
    due_at timestamp with time zone DEFAULT now() NOT NULL,
    send_after timestamp with time zone DEFAULT now() NOT NULL,
    attempt bigint DEFAULT '0'::bigint NOT NULL,
    lease_expires_at timestamp with time zone,
    last_started_at timestamp with time zone,
    last_finished_at timestamp with time zone,
    bookmark bigint,
    last_result jsonb,
    last_error character varying
)
WITH (autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_threshold='1000', fillfactor='50');

CREATE TABLE public.member_day_deltas (
    id bigint NOT NULL,
    list_id bigint NOT NULL,
    day date NOT NULL,
    source character varying NOT NULL,
    type character varying NOT NULL,
    joined bigint NOT NULL,
    gone bigint NOT NULL,
    moved_in bigint NOT NULL,
    moved_out bigint NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_threshold='1000');

ALTER TABLE public.member_day_deltas ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME public.member_day_deltas_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.member_days (
    list_id bigint NOT NULL,
    day date NOT NULL,
    source character varying NOT NULL,
    type character varying NOT NULL,
    joined bigint NOT NULL,
    gone bigint NOT NULL,
    moved_in bigint NOT NULL,
    moved_out bigint NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.05', fillfactor='80');

CREATE TABLE public.named_members (
    import_id bigint NOT NULL,
    user_id bigint NOT NULL,
    has_left boolean NOT NULL
);

CREATE TABLE public.oauth_clients (
    client_id character varying NOT NULL,
    name character varying NOT NULL,
    secret_hmac bytea,
    redirect_uris text[] NOT NULL,
    scopes text[] NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    revoked_at timestamp with time zone,
    CONSTRAINT ck_oauth_clients_hmac_length CHECK ((octet_length(secret_hmac) = 32)),
    CONSTRAINT ck_oauth_clients_never_delivery CHECK ((NOT ('delivery'::text = ANY (scopes))))
);

CREATE TABLE public.oauth_codes (
    id bigint NOT NULL,
    grant_id bigint NOT NULL,
    secret_hmac bytea NOT NULL,
    redirect_uri character varying NOT NULL,
    scopes text[] NOT NULL,
    challenge character varying NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    used_at timestamp with time zone,
    CONSTRAINT ck_oauth_codes_challenge_form CHECK (((challenge)::text ~ '^[A-Za-z0-9_-]{43}$'::text)),
    CONSTRAINT ck_oauth_codes_hmac_length CHECK ((octet_length(secret_hmac) = 32)),
    CONSTRAINT ck_oauth_codes_never_delivery CHECK ((NOT ('delivery'::text = ANY (scopes))))
)
WITH (autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_threshold='1000');

ALTER TABLE public.oauth_codes ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME public.oauth_codes_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.oauth_grants (
    id bigint NOT NULL,
    user_id bigint NOT NULL,
    client_id character varying NOT NULL,
    scopes text[] NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    revoked_at timestamp with time zone,
    CONSTRAINT ck_oauth_grants_never_delivery CHECK ((NOT ('delivery'::text = ANY (scopes))))
);

ALTER TABLE public.oauth_grants ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME public.oauth_grants_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.oauth_tokens (
    id bigint NOT NULL,
    kind character varying NOT NULL,
    grant_id bigint NOT NULL,
    family bigint NOT NULL,
    secret_hmac bytea NOT NULL,
    scopes text[] NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    rotated_at timestamp with time zone,
    revoked_at timestamp with time zone,
    CONSTRAINT ck_oauth_tokens_hmac_length CHECK ((octet_length(secret_hmac) = 32)),
    CONSTRAINT ck_oauth_tokens_kind_known CHECK ((kind IN ('access', 'refresh'))),
    CONSTRAINT ck_oauth_tokens_never_delivery CHECK ((NOT ('delivery'::text = ANY (scopes)))),
    CONSTRAINT ck_oauth_tokens_only_refresh_rotates CHECK (((rotated_at IS NULL) OR ((kind)::text = 'refresh'::text)))
)
WITH (autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_threshold='1000');

ALTER TABLE public.oauth_tokens ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME public.oauth_tokens_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.object_removals (
    id bigint NOT NULL,
    key character varying NOT NULL,
    try_at timestamp with time zone DEFAULT now() NOT NULL,
    tries bigint DEFAULT '0'::bigint NOT NULL,
    last_reason character varying,
    created_at timestamp with time zone DEFAULT now() NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_threshold='1000');

ALTER TABLE public.object_removals ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME public.object_removals_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.open_charges (
    entry_id bigint NOT NULL,
    call character varying NOT NULL,
    work character varying NOT NULL,
    taken_by character varying,
    deadline timestamp with time zone NOT NULL
);

CREATE TABLE public.opt_outs (
    id bigint NOT NULL,
    list_id bigint NOT NULL,
    user_id bigint,
    address_hmac bytea NOT NULL,
    kind character varying NOT NULL,
    source character varying NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT ck_opt_outs_hmac_length CHECK ((octet_length(address_hmac) = 32)),
    CONSTRAINT ck_opt_outs_kind_known CHECK ((kind IN ('list', 'email')))
);

ALTER TABLE public.opt_outs ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME public.opt_outs_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.passkeys (
    id bigint NOT NULL,
    user_id bigint NOT NULL,
    name character varying NOT NULL,
    credential_id bytea NOT NULL,
    public_key bytea NOT NULL,
    sign_count bigint NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    last_used_at timestamp with time zone
);

ALTER TABLE public.passkeys ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME public.passkeys_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.payment_events (
    id bigint NOT NULL,
    channel character varying NOT NULL,
    event_id character varying NOT NULL,
    type character varying NOT NULL,
    order_id bigint NOT NULL,
    facts jsonb NOT NULL,
    happened_at timestamp with time zone NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL
);

ALTER TABLE public.payment_events ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME public.payment_events_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.payment_order_changes (
    id bigint NOT NULL,
    order_id bigint NOT NULL,
    from_status character varying,
    to_status character varying NOT NULL,
    via character varying NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL
);

ALTER TABLE public.payment_order_changes ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME public.payment_order_changes_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.payment_order_checkpoints (
    change_id bigint NOT NULL,
    signature character varying NOT NULL
);

CREATE TABLE public.payment_order_transitions (
    from_status character varying NOT NULL,
    to_status character varying NOT NULL
);

CREATE TABLE public.payment_orders (
    id bigint NOT NULL,
    user_id bigint,
    status character varying NOT NULL,
    changed_via character varying NOT NULL,
    channel character varying NOT NULL,
    currency character varying NOT NULL,
    amount numeric(15,4) NOT NULL,
    amount_minor bigint NOT NULL,
    credit_amount numeric(15,4) NOT NULL,
    credits_per_usd numeric(15,4) NOT NULL,
    units_per_usd numeric(15,4) NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    session_id character varying,
    payment_id character varying,
    payment_url character varying,
    redirect_url character varying,
    claim_token_hmac bytea,
    claimed_at timestamp with time zone,
    paid_at timestamp with time zone,
    is_failed boolean DEFAULT false NOT NULL,
    is_expired boolean DEFAULT false NOT NULL,
    closed_at timestamp with time zone,
    refunded_minor bigint DEFAULT 0 NOT NULL,
    refunds_failed_minor bigint DEFAULT 0 NOT NULL,
    disputes_minor bigint DEFAULT 0 NOT NULL,
    disputes_ended_minor bigint DEFAULT 0 NOT NULL,
    disputes_lost_minor bigint DEFAULT 0 NOT NULL,
    dispute character varying,
    disputed_minor bigint,
    mismatch character varying,
    resolution character varying,
    error jsonb,
    credited numeric(15,4) DEFAULT 0 NOT NULL,
    taken numeric(15,4) DEFAULT 0 NOT NULL,
    next_check_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT ck_payment_orders_amount_positive CHECK (((amount > (0)::numeric) AND (amount_minor > 0))),
    CONSTRAINT ck_payment_orders_credit_amount_positive CHECK ((credit_amount > (0)::numeric)),
    CONSTRAINT ck_payment_orders_credited_once CHECK (((credited = (0)::numeric) OR (credited = credit_amount))),
    CONSTRAINT ck_payment_orders_dispute_known CHECK ((dispute IN ('open', 'won', 'lost'))),
    CONSTRAINT ck_payment_orders_hmac_length CHECK ((octet_length(claim_token_hmac) = 32)),
    CONSTRAINT ck_payment_orders_rates_positive CHECK (((credits_per_usd > (0)::numeric) AND (units_per_usd > (0)::numeric))),
    CONSTRAINT ck_payment_orders_refunded_not_negative CHECK ((refunded_minor >= 0)),
    CONSTRAINT ck_payment_orders_refunds_failed_not_negative CHECK ((refunds_failed_minor >= 0)),
    CONSTRAINT ck_payment_orders_resolution_known CHECK ((resolution IN ('credit', 'refunded'))),
    CONSTRAINT ck_payment_orders_status_known CHECK ((status IN ('created', 'pending', 'paid', 'paid_unclaimed', 'failed', 'expired', 'review', 'disputed', 'refunded'))),
    CONSTRAINT ck_payment_orders_taken_of_credited CHECK (((taken >= (0)::numeric) AND (taken <= credited)))
);

CREATE TABLE public.recovery_codes (
    id bigint NOT NULL,
    user_id bigint NOT NULL,
    code_hmac bytea NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    used_at timestamp with time zone,
    CONSTRAINT ck_recovery_codes_hmac_length CHECK ((octet_length(code_hmac) = 32))
);

ALTER TABLE public.recovery_codes ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME public.recovery_codes_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.segments (
    id bigint NOT NULL,
    list_id bigint NOT NULL,
    name character varying NOT NULL,
    folded character varying NOT NULL,
    filter jsonb NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL
);

ALTER TABLE public.segments ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME public.segments_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.spent_proofs (
    proof_hash bytea NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    CONSTRAINT ck_spent_proofs_hash_length CHECK ((octet_length(proof_hash) = 32))
);

CREATE TABLE public.storage_uses (
    user_id bigint NOT NULL,
    bytes bigint NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.05', fillfactor='80');

CREATE TABLE public.subscriber_counts (
    list_id bigint NOT NULL,
    active bigint NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.05', fillfactor='80');

CREATE TABLE public.subscriber_deltas (
    id bigint NOT NULL,
    list_id bigint NOT NULL,
    active bigint NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_threshold='1000');

ALTER TABLE public.subscriber_deltas ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME public.subscriber_deltas_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.subscription_events (
    id bigint NOT NULL,
    list_id bigint NOT NULL,
    user_id bigint NOT NULL,
    action character varying NOT NULL,
    actor character varying NOT NULL,
    actor_id bigint,
    via character varying NOT NULL,
    status_before character varying,
    status_after character varying,
    email_enabled_before boolean,
    email_enabled_after boolean,
    changed text[],
    reason character varying,
    ip character varying,
    request_id character varying,
    created_at timestamp with time zone DEFAULT now() NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.02');

ALTER TABLE public.subscription_events ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME public.subscription_events_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.subscriptions (
    id bigint NOT NULL,
    list_id bigint NOT NULL,
    user_id bigint NOT NULL,
    status character varying NOT NULL,
    type character varying DEFAULT 'free'::character varying NOT NULL,
    paid_expiry timestamp with time zone,
    email_enabled boolean DEFAULT true NOT NULL,
    name character varying,
    email character varying,
    source character varying NOT NULL,
    confirmation_asked_at timestamp with time zone,
    remind_at timestamp with time zone,
    fields jsonb DEFAULT '{}'::jsonb NOT NULL,
    tag_ids bigint[] DEFAULT '{}'::bigint[] NOT NULL,
    joined_at timestamp with time zone,
    submitted jsonb,
    language character varying,
    import_id bigint,
    imported_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT ck_subscriptions_status_known CHECK ((status IN ('pending', 'active', 'unsubscribed', 'removed'))),
    CONSTRAINT ck_subscriptions_type_known CHECK ((type IN ('free', 'silver', 'gold')))
)
WITH (autovacuum_vacuum_scale_factor='0.02');

ALTER TABLE public.subscriptions ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME public.subscriptions_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.tags (
    id bigint NOT NULL,
    list_id bigint NOT NULL,
    name character varying NOT NULL,
    folded character varying NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT ck_tags_name_bounded CHECK (((char_length((name)::text) >= 1) AND (char_length((name)::text) <= 40)))
);

ALTER TABLE public.tags ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME public.tags_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.totp_secrets (
    user_id bigint NOT NULL,
    wrapped_secret bytea NOT NULL,
    wrapped_by character varying NOT NULL,
    last_step bigint NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL
);

CREATE TABLE public.user_sessions (
    id bigint NOT NULL,
    user_id bigint NOT NULL,
    secret_hmac bytea NOT NULL,
    browser character varying,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    logged_in_at timestamp with time zone DEFAULT now() NOT NULL,
    last_used_at timestamp with time zone DEFAULT now() NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    ended_at timestamp with time zone,
    CONSTRAINT ck_user_sessions_hmac_length CHECK ((octet_length(secret_hmac) = 32))
)
WITH (autovacuum_vacuum_scale_factor='0.05', fillfactor='80');

ALTER TABLE public.user_sessions ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME public.user_sessions_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.users (
    id bigint NOT NULL,
    email character varying NOT NULL,
    name character varying,
    password_hash character varying,
    plan character varying DEFAULT 'free'::character varying NOT NULL,
    is_operator boolean DEFAULT false NOT NULL,
    import_mails boolean DEFAULT true NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    recovered_at timestamp with time zone,
    erased_at timestamp with time zone,
    CONSTRAINT ck_users_email_normalised CHECK (((email)::text = lower((email)::text))),
    CONSTRAINT ck_users_plan_known CHECK ((plan IN ('free', 'paid')))
)
WITH (autovacuum_vacuum_scale_factor='0.02');

CREATE TABLE public.waiting_chunks (
    import_id bigint NOT NULL,
    number bigint NOT NULL,
    job_id bigint,
    attempt bigint,
    tries smallint DEFAULT '0'::smallint NOT NULL
);

CREATE TABLE public.webhook_deliveries (
    id bigint NOT NULL,
    endpoint_id bigint NOT NULL,
    event_id bigint,
    place bigint,
    event_type character varying NOT NULL,
    person_id bigint,
    status character varying DEFAULT 'pending'::character varying NOT NULL,
    attempts bigint DEFAULT '0'::bigint NOT NULL,
    round_attempts bigint DEFAULT '0'::bigint NOT NULL,
    queued_at timestamp with time zone DEFAULT now() NOT NULL,
    due_at timestamp with time zone DEFAULT now() NOT NULL,
    last_attempt_at timestamp with time zone,
    delivered_at timestamp with time zone,
    status_code bigint,
    milliseconds bigint,
    answer bytea,
    error character varying,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT ck_webhook_deliveries_answer_bounded CHECK ((octet_length(answer) <= 4096)),
    CONSTRAINT ck_webhook_deliveries_status_known CHECK ((status IN ('pending', 'delivered', 'failed')))
)
WITH (autovacuum_vacuum_scale_factor='0.02');

ALTER TABLE public.webhook_deliveries ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME public.webhook_deliveries_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.webhook_endpoints (
    id bigint NOT NULL,
    user_id bigint NOT NULL,
    key_id bigint,
    url character varying NOT NULL,
    types text[] NOT NULL,
    list_id bigint,
    state character varying DEFAULT 'active'::character varying NOT NULL,
    reason character varying,
    place bigint NOT NULL,
    event_id bigint NOT NULL,
    starts jsonb DEFAULT '{}'::jsonb NOT NULL,
    due_at timestamp with time zone,
    is_held boolean DEFAULT false NOT NULL,
    failing_since timestamp with time zone,
    silences bigint DEFAULT '0'::bigint NOT NULL,
    rests_until timestamp with time zone,
    job_id bigint,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    deleted_at timestamp with time zone,
    CONSTRAINT ck_webhook_endpoints_has_types CHECK ((cardinality(types) > 0)),
    CONSTRAINT ck_webhook_endpoints_state_known CHECK ((state IN ('active', 'paused', 'ended'))),
    CONSTRAINT ck_webhook_endpoints_url_bounded CHECK ((char_length((url)::text) <= 2000))
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0.05');

ALTER TABLE public.webhook_endpoints ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME public.webhook_endpoints_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.webhook_secrets (
    id bigint NOT NULL,
    endpoint_id bigint NOT NULL,
    context character varying NOT NULL,
    wrapped_key bytea NOT NULL,
    wrapped_by character varying NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    expires_at timestamp with time zone
);

ALTER TABLE public.webhook_secrets ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME public.webhook_secrets_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

ALTER TABLE ONLY public.account_mails
    ADD CONSTRAINT pk_account_mails PRIMARY KEY (id);

ALTER TABLE ONLY public.api_keys
    ADD CONSTRAINT pk_api_keys PRIMARY KEY (id);

ALTER TABLE ONLY public.attachments
    ADD CONSTRAINT pk_attachments PRIMARY KEY (id);

ALTER TABLE ONLY public.bulk_actions
    ADD CONSTRAINT pk_bulk_actions PRIMARY KEY (id);

ALTER TABLE ONLY public.bulk_changes
    ADD CONSTRAINT pk_bulk_changes PRIMARY KEY (bulk_id, subscription_id);

ALTER TABLE ONLY public.composer_uses
    ADD CONSTRAINT pk_composer_uses PRIMARY KEY (user_id);

ALTER TABLE ONLY public.consent_claims
    ADD CONSTRAINT pk_consent_claims PRIMARY KEY (import_id, subscription_id, how);

ALTER TABLE ONLY public.consent_entries
    ADD CONSTRAINT pk_consent_entries PRIMARY KEY (id);

ALTER TABLE ONLY public.consent_wordings
    ADD CONSTRAINT pk_consent_wordings PRIMARY KEY (list_id, version);

ALTER TABLE ONLY public.credit_accounts
    ADD CONSTRAINT pk_credit_accounts PRIMARY KEY (id);

ALTER TABLE ONLY public.credit_checkpoints
    ADD CONSTRAINT pk_credit_checkpoints PRIMARY KEY (user_id);

ALTER TABLE ONLY public.credit_entries
    ADD CONSTRAINT pk_credit_entries PRIMARY KEY (id);

ALTER TABLE ONLY public.deleted_tags
    ADD CONSTRAINT pk_deleted_tags PRIMARY KEY (list_id, id);

ALTER TABLE ONLY public.denied_entries
    ADD CONSTRAINT pk_denied_entries PRIMARY KEY (user_id, entry);

ALTER TABLE ONLY public.departures
    ADD CONSTRAINT pk_departures PRIMARY KEY (id);

ALTER TABLE ONLY public.erasures
    ADD CONSTRAINT pk_erasures PRIMARY KEY (user_id);

ALTER TABLE ONLY public.events
    ADD CONSTRAINT pk_events PRIMARY KEY (id);

ALTER TABLE ONLY public.exports
    ADD CONSTRAINT pk_exports PRIMARY KEY (id);

ALTER TABLE ONLY public.feed_events
    ADD CONSTRAINT pk_feed_events PRIMARY KEY (id);

ALTER TABLE ONLY public.feed_offsets
    ADD CONSTRAINT pk_feed_offsets PRIMARY KEY (id);

ALTER TABLE ONLY public.fields
    ADD CONSTRAINT pk_fields PRIMARY KEY (id);

ALTER TABLE ONLY public.former_addresses
    ADD CONSTRAINT pk_former_addresses PRIMARY KEY (email, user_id);

ALTER TABLE ONLY public.idempotency_records
    ADD CONSTRAINT pk_idempotency_records PRIMARY KEY (id);

ALTER TABLE ONLY public.import_changes
    ADD CONSTRAINT pk_import_changes PRIMARY KEY (import_id, subscription_id);

ALTER TABLE ONLY public.import_chunks
    ADD CONSTRAINT pk_import_chunks PRIMARY KEY (import_id, number);

ALTER TABLE ONLY public.imports
    ADD CONSTRAINT pk_imports PRIMARY KEY (id);

ALTER TABLE ONLY public.jobs
    ADD CONSTRAINT pk_jobs PRIMARY KEY (id);

ALTER TABLE ONLY public.list_reports
    ADD CONSTRAINT pk_list_reports PRIMARY KEY (id);

ALTER TABLE ONLY public.lists
    ADD CONSTRAINT pk_lists PRIMARY KEY (id);

ALTER TABLE ONLY public.login_attempts
    ADD CONSTRAINT pk_login_attempts PRIMARY KEY (subject);

ALTER TABLE ONLY public.mail_counts
    ADD CONSTRAINT pk_mail_counts PRIMARY KEY (digest);

ALTER TABLE ONLY public.mailed_links
    ADD CONSTRAINT pk_mailed_links PRIMARY KEY (id);

ALTER TABLE ONLY public.maintenance
    ADD CONSTRAINT pk_maintenance PRIMARY KEY (name);

ALTER TABLE ONLY public.member_day_deltas
    ADD CONSTRAINT pk_member_day_deltas PRIMARY KEY (id);

ALTER TABLE ONLY public.member_days
    ADD CONSTRAINT pk_member_days PRIMARY KEY (list_id, day, source, type);

ALTER TABLE ONLY public.named_members
    ADD CONSTRAINT pk_named_members PRIMARY KEY (import_id, user_id);

ALTER TABLE ONLY public.oauth_clients
    ADD CONSTRAINT pk_oauth_clients PRIMARY KEY (client_id);

ALTER TABLE ONLY public.oauth_codes
    ADD CONSTRAINT pk_oauth_codes PRIMARY KEY (id);

ALTER TABLE ONLY public.oauth_grants
    ADD CONSTRAINT pk_oauth_grants PRIMARY KEY (id);

ALTER TABLE ONLY public.oauth_tokens
    ADD CONSTRAINT pk_oauth_tokens PRIMARY KEY (id);

ALTER TABLE ONLY public.object_removals
    ADD CONSTRAINT pk_object_removals PRIMARY KEY (id);

ALTER TABLE ONLY public.open_charges
    ADD CONSTRAINT pk_open_charges PRIMARY KEY (entry_id);

ALTER TABLE ONLY public.opt_outs
    ADD CONSTRAINT pk_opt_outs PRIMARY KEY (id);

ALTER TABLE ONLY public.passkeys
    ADD CONSTRAINT pk_passkeys PRIMARY KEY (id);

ALTER TABLE ONLY public.payment_events
    ADD CONSTRAINT pk_payment_events PRIMARY KEY (id);

ALTER TABLE ONLY public.payment_order_changes
    ADD CONSTRAINT pk_payment_order_changes PRIMARY KEY (id);

ALTER TABLE ONLY public.payment_order_checkpoints
    ADD CONSTRAINT pk_payment_order_checkpoints PRIMARY KEY (change_id);

ALTER TABLE ONLY public.payment_order_transitions
    ADD CONSTRAINT pk_payment_order_transitions PRIMARY KEY (from_status, to_status);

ALTER TABLE ONLY public.payment_orders
    ADD CONSTRAINT pk_payment_orders PRIMARY KEY (id);

ALTER TABLE ONLY public.recovery_codes
    ADD CONSTRAINT pk_recovery_codes PRIMARY KEY (id);

ALTER TABLE ONLY public.segments
    ADD CONSTRAINT pk_segments PRIMARY KEY (id);

ALTER TABLE ONLY public.spent_proofs
    ADD CONSTRAINT pk_spent_proofs PRIMARY KEY (proof_hash);

ALTER TABLE ONLY public.storage_uses
    ADD CONSTRAINT pk_storage_uses PRIMARY KEY (user_id);

ALTER TABLE ONLY public.subscriber_counts
    ADD CONSTRAINT pk_subscriber_counts PRIMARY KEY (list_id);

ALTER TABLE ONLY public.subscriber_deltas
    ADD CONSTRAINT pk_subscriber_deltas PRIMARY KEY (id);

ALTER TABLE ONLY public.subscription_events
    ADD CONSTRAINT pk_subscription_events PRIMARY KEY (id);

ALTER TABLE ONLY public.subscriptions
    ADD CONSTRAINT pk_subscriptions PRIMARY KEY (id);

ALTER TABLE ONLY public.tags
    ADD CONSTRAINT pk_tags PRIMARY KEY (id);

ALTER TABLE ONLY public.totp_secrets
    ADD CONSTRAINT pk_totp_secrets PRIMARY KEY (user_id);

ALTER TABLE ONLY public.user_sessions
    ADD CONSTRAINT pk_user_sessions PRIMARY KEY (id);

ALTER TABLE ONLY public.users
    ADD CONSTRAINT pk_users PRIMARY KEY (id);

ALTER TABLE ONLY public.waiting_chunks
    ADD CONSTRAINT pk_waiting_chunks PRIMARY KEY (import_id, number);

ALTER TABLE ONLY public.webhook_deliveries
    ADD CONSTRAINT pk_webhook_deliveries PRIMARY KEY (id);

ALTER TABLE ONLY public.webhook_endpoints
    ADD CONSTRAINT pk_webhook_endpoints PRIMARY KEY (id);

ALTER TABLE ONLY public.webhook_secrets
    ADD CONSTRAINT pk_webhook_secrets PRIMARY KEY (id);

ALTER TABLE ONLY public.api_keys
    ADD CONSTRAINT uq_api_keys_secret_hmac UNIQUE (secret_hmac);

ALTER TABLE ONLY public.attachments
    ADD CONSTRAINT uq_attachments_filename UNIQUE (filename);

ALTER TABLE ONLY public.attachments
    ADD CONSTRAINT uq_attachments_hash_id UNIQUE (hash_id);

ALTER TABLE ONLY public.credit_accounts
    ADD CONSTRAINT uq_credit_accounts_user_id UNIQUE (user_id);

ALTER TABLE ONLY public.credit_entries
    ADD CONSTRAINT uq_credit_entries_user_id_seq UNIQUE (user_id, seq);

ALTER TABLE ONLY public.exports
    ADD CONSTRAINT uq_exports_object_prefix UNIQUE (object_prefix);

ALTER TABLE ONLY public.idempotency_records
    ADD CONSTRAINT uq_idempotency_records_caller_id_route_key UNIQUE (caller_id, route, key);

ALTER TABLE ONLY public.imports
    ADD CONSTRAINT uq_imports_object_prefix UNIQUE (object_prefix);

ALTER TABLE ONLY public.list_reports
    ADD CONSTRAINT uq_list_reports_list_id_user_id UNIQUE (list_id, user_id);

ALTER TABLE ONLY public.list_reports
    ADD CONSTRAINT uq_list_reports_network_digest_list_id UNIQUE (network_digest, list_id);

ALTER TABLE ONLY public.lists
    ADD CONSTRAINT uq_lists_slug UNIQUE (slug);

ALTER TABLE ONLY public.mailed_links
    ADD CONSTRAINT uq_mailed_links_secret_hmac UNIQUE (secret_hmac);

ALTER TABLE ONLY public.oauth_codes
    ADD CONSTRAINT uq_oauth_codes_secret_hmac UNIQUE (secret_hmac);

ALTER TABLE ONLY public.oauth_tokens
    ADD CONSTRAINT uq_oauth_tokens_secret_hmac UNIQUE (secret_hmac);

ALTER TABLE ONLY public.opt_outs
    ADD CONSTRAINT uq_opt_outs_list_id_address_hmac_kind UNIQUE (list_id, address_hmac, kind);

ALTER TABLE ONLY public.opt_outs
    ADD CONSTRAINT uq_opt_outs_list_id_user_id_kind UNIQUE (list_id, user_id, kind);

ALTER TABLE ONLY public.passkeys
    ADD CONSTRAINT uq_passkeys_credential_id UNIQUE (credential_id);

ALTER TABLE ONLY public.payment_events
    ADD CONSTRAINT uq_payment_events_channel_event_id UNIQUE (channel, event_id);

ALTER TABLE ONLY public.payment_orders
    ADD CONSTRAINT uq_payment_orders_claim_token_hmac UNIQUE (claim_token_hmac);

ALTER TABLE ONLY public.recovery_codes
    ADD CONSTRAINT uq_recovery_codes_code_hmac UNIQUE (code_hmac);

ALTER TABLE ONLY public.segments
    ADD CONSTRAINT uq_segments_list_id_folded UNIQUE (list_id, folded);

ALTER TABLE ONLY public.subscriptions
    ADD CONSTRAINT uq_subscriptions_user_id_list_id UNIQUE (user_id, list_id);

ALTER TABLE ONLY public.tags
    ADD CONSTRAINT uq_tags_list_id_folded UNIQUE (list_id, folded);

ALTER TABLE ONLY public.user_sessions
    ADD CONSTRAINT uq_user_sessions_secret_hmac UNIQUE (secret_hmac);

ALTER TABLE ONLY public.users
    ADD CONSTRAINT uq_users_email UNIQUE (email);

ALTER TABLE ONLY public.webhook_secrets
    ADD CONSTRAINT uq_webhook_secrets_context UNIQUE (context);

CREATE INDEX ix_account_mails_created_at ON public.account_mails USING btree (created_at);

CREATE INDEX ix_account_mails_email_kind ON public.account_mails USING btree (email, kind);

CREATE INDEX ix_account_mails_user_id ON public.account_mails USING btree (user_id);

CREATE INDEX ix_api_keys_maker_id ON public.api_keys USING btree (maker_id);

CREATE INDEX ix_api_keys_user_id ON public.api_keys USING btree (user_id);

CREATE INDEX ix_attachments_user_id_id ON public.attachments USING btree (user_id, id DESC);

CREATE INDEX ix_bulk_actions_finished_at ON public.bulk_actions USING btree (finished_at);

CREATE INDEX ix_bulk_actions_list_id ON public.bulk_actions USING btree (list_id);

CREATE INDEX ix_bulk_actions_user_id_id ON public.bulk_actions USING btree (user_id, id);

CREATE INDEX ix_bulk_changes_subscription_id ON public.bulk_changes USING btree (subscription_id);

CREATE INDEX ix_composer_uses_day ON public.composer_uses USING btree (day);

CREATE INDEX ix_consent_claims_subscription_id ON public.consent_claims USING btree (subscription_id);

CREATE INDEX ix_consent_claims_whole_ip ON public.consent_claims USING btree (occurred_at) WHERE (strpos((ip)::text, '/'::text) = 0);

CREATE INDEX ix_consent_entries_network ON public.consent_entries USING btree (list_id, public.network_of_ip((ip)::text), user_id) WHERE (ip IS NOT NULL);

CREATE INDEX ix_consent_entries_user_id_list_id_id ON public.consent_entries USING btree (user_id, list_id, id);

CREATE INDEX ix_consent_entries_whole_ip ON public.consent_entries USING btree (occurred_at) WHERE (strpos((ip)::text, '/'::text) = 0);

CREATE INDEX ix_credit_entries_order_id ON public.credit_entries USING btree (order_id) WHERE (order_id IS NOT NULL);

CREATE INDEX ix_denied_entries_entry ON public.denied_entries USING btree (entry);

CREATE INDEX ix_erasures_address_hmac ON public.erasures USING btree (address_hmac) WHERE (address_hmac IS NOT NULL);

CREATE INDEX ix_erasures_unfinished ON public.erasures USING btree (user_id) WHERE (finished_at IS NULL);

CREATE INDEX ix_events_occurred_at ON public.events USING btree (occurred_at);

CREATE INDEX ix_events_user_id_id ON public.events USING btree (user_id, id DESC);

CREATE INDEX ix_exports_created_at ON public.exports USING btree (created_at) WHERE (files_removed_at IS NOT NULL);

CREATE INDEX ix_exports_list_id ON public.exports USING btree (list_id);

CREATE INDEX ix_exports_user_id ON public.exports USING btree (user_id);

CREATE INDEX ix_exports_with_files ON public.exports USING btree (created_at) WHERE (files_removed_at IS NULL);

CREATE INDEX ix_feed_events_list_id_type_place_id ON public.feed_events USING btree (list_id, type, place, id) WHERE (list_id IS NOT NULL);

CREATE INDEX ix_feed_events_user_id_type_place_id ON public.feed_events USING btree (user_id, type, place, id);

CREATE INDEX ix_fields_suspicious ON public.fields USING btree (id) WHERE (suspicious_words IS NOT NULL);

CREATE INDEX ix_fields_user_id ON public.fields USING btree (user_id);

CREATE INDEX ix_former_addresses_user_id ON public.former_addresses USING btree (user_id);

CREATE INDEX ix_idempotency_records_expires_at ON public.idempotency_records USING btree (expires_at);

CREATE INDEX ix_idempotency_records_job_id ON public.idempotency_records USING btree (job_id);

CREATE INDEX ix_import_changes_subscription_id ON public.import_changes USING btree (subscription_id);

CREATE INDEX ix_imports_finished_at ON public.imports USING btree (finished_at) WHERE (((added = undone) OR dry_run) AND (files_removed_at IS NOT NULL));

CREATE INDEX ix_imports_list_id ON public.imports USING btree (list_id);

CREATE INDEX ix_imports_running ON public.imports USING btree (list_id) WHERE ((status)::text = 'running'::text);

CREATE INDEX ix_imports_undo_job_id ON public.imports USING btree (undo_job_id) WHERE (undo_job_id IS NOT NULL);

CREATE INDEX ix_imports_user_id_id ON public.imports USING btree (user_id, id DESC);

CREATE INDEX ix_imports_with_files ON public.imports USING btree (created_at) WHERE (files_removed_at IS NULL);

CREATE INDEX ix_jobs_finished_at ON public.jobs USING btree (finished_at) WHERE (finished_at IS NOT NULL);

CREATE INDEX ix_jobs_lease_expires_at ON public.jobs USING btree (lease_expires_at) WHERE ((status)::text = 'running'::text);

CREATE INDEX ix_jobs_queue_on_behalf_of_sends_send_after ON public.jobs USING btree (queue, on_behalf_of, sends, send_after) WHERE ((status)::text = 'queued'::text);

CREATE INDEX ix_jobs_queue_send_after ON public.jobs USING btree (queue, send_after) WHERE (((status)::text = 'queued'::text) AND (sends > 0));

CREATE INDEX ix_jobs_queue_send_after_unsent ON public.jobs USING btree (queue, send_after) WHERE (((status)::text = 'queued'::text) AND (sends = 0));

CREATE INDEX ix_jobs_user_id_id ON public.jobs USING btree (user_id, id DESC);

CREATE INDEX ix_list_reports_created_at ON public.list_reports USING btree (created_at);

CREATE INDEX ix_list_reports_user_id ON public.list_reports USING btree (user_id);

CREATE INDEX ix_lists_open ON public.lists USING btree (user_id) WHERE (archived_at IS NULL);

CREATE INDEX ix_lists_suspicious ON public.lists USING btree (id) WHERE (suspicious_words IS NOT NULL);

CREATE INDEX ix_lists_user_id_created_at ON public.lists USING btree (user_id, created_at DESC, id DESC);

CREATE INDEX ix_login_attempts_tried_at ON public.login_attempts USING btree (tried_at);

CREATE INDEX ix_mail_counts_ends_at ON public.mail_counts USING btree (ends_at);

CREATE INDEX ix_mailed_links_email ON public.mailed_links USING btree (email);

CREATE INDEX ix_mailed_links_expires_at ON public.mailed_links USING btree (expires_at);

CREATE INDEX ix_mailed_links_user_id_list_id ON public.mailed_links USING btree (user_id, list_id);

CREATE INDEX ix_member_day_deltas_list_id ON public.member_day_deltas USING btree (list_id);

CREATE INDEX ix_oauth_codes_expires_at ON public.oauth_codes USING btree (expires_at);

CREATE INDEX ix_oauth_codes_grant_id ON public.oauth_codes USING btree (grant_id);

CREATE INDEX ix_oauth_grants_client_id ON public.oauth_grants USING btree (client_id);

CREATE INDEX ix_oauth_grants_user_id ON public.oauth_grants USING btree (user_id);

CREATE INDEX ix_oauth_tokens_expires_at ON public.oauth_tokens USING btree (expires_at);

CREATE INDEX ix_oauth_tokens_family ON public.oauth_tokens USING btree (family);

CREATE INDEX ix_oauth_tokens_grant_id ON public.oauth_tokens USING btree (grant_id);

CREATE INDEX ix_object_removals_try_at ON public.object_removals USING btree (try_at);

CREATE INDEX ix_open_charges_deadline ON public.open_charges USING btree (deadline);

CREATE INDEX ix_open_charges_work ON public.open_charges USING btree (work);

CREATE INDEX ix_opt_outs_user_id ON public.opt_outs USING btree (user_id);

CREATE INDEX ix_passkeys_user_id ON public.passkeys USING btree (user_id);

CREATE INDEX ix_payment_events_order_id ON public.payment_events USING btree (order_id);

CREATE INDEX ix_payment_order_changes_order_id_id ON public.payment_order_changes USING btree (order_id, id);

CREATE INDEX ix_payment_orders_abandoned ON public.payment_orders USING btree (created_at) WHERE ((user_id IS NULL) AND (paid_at IS NULL) AND (mismatch IS NULL) AND (next_check_at IS NULL));

CREATE INDEX ix_payment_orders_channel_payment_id ON public.payment_orders USING btree (channel, payment_id);

CREATE INDEX ix_payment_orders_channel_session_id ON public.payment_orders USING btree (channel, session_id);

CREATE INDEX ix_payment_orders_next_check_at ON public.payment_orders USING btree (next_check_at) WHERE (next_check_at IS NOT NULL);

CREATE INDEX ix_payment_orders_status_created_at ON public.payment_orders USING btree (status, created_at);

CREATE INDEX ix_payment_orders_user_id_created_at ON public.payment_orders USING btree (user_id, created_at DESC, id DESC);

CREATE INDEX ix_recovery_codes_user_id ON public.recovery_codes USING btree (user_id);

CREATE INDEX ix_spent_proofs_expires_at ON public.spent_proofs USING btree (expires_at);

CREATE INDEX ix_subscriber_deltas_list_id ON public.subscriber_deltas USING btree (list_id) INCLUDE (active);

CREATE INDEX ix_subscription_events_actor_id_id ON public.subscription_events USING btree (actor_id, id) WHERE ((actor_id IS NOT NULL) AND ((ip IS NOT NULL) OR (request_id IS NOT NULL)));

CREATE INDEX ix_subscription_events_member ON public.subscription_events USING btree (list_id, user_id, id DESC);

CREATE INDEX ix_subscription_events_sign_ups ON public.subscription_events USING btree (list_id, created_at) WHERE (((action)::text = 'confirmed'::text) OR (((action)::text = 'requested'::text) AND ((status_after)::text = 'pending'::text)));

CREATE INDEX ix_subscription_events_user_id_id ON public.subscription_events USING btree (user_id, id);

CREATE INDEX ix_subscriptions_active ON public.subscriptions USING btree (list_id, id) WHERE ((status)::text = 'active'::text);

CREATE INDEX ix_subscriptions_active_email ON public.subscriptions USING btree (list_id, email text_pattern_ops) INCLUDE (id) WHERE ((status)::text = 'active'::text);

CREATE INDEX ix_subscriptions_active_premium ON public.subscriptions USING btree (list_id, id) INCLUDE (type, paid_expiry) WHERE (((status)::text = 'active'::text) AND ((type)::text <> 'free'::text));

CREATE INDEX ix_subscriptions_fields ON public.subscriptions USING gin (((casefold(((fields)::text COLLATE pg_unicode_fast)))::jsonb) jsonb_path_ops) WHERE (fields <> '{}'::jsonb);

CREATE INDEX ix_subscriptions_import_id ON public.subscriptions USING btree (import_id, id) WHERE (import_id IS NOT NULL);

CREATE INDEX ix_subscriptions_inactive ON public.subscriptions USING btree (list_id, status, id) INCLUDE (email) WHERE ((status)::text <> 'active'::text);

CREATE INDEX ix_subscriptions_joined_at ON public.subscriptions USING btree (list_id, joined_at) WHERE (joined_at IS NOT NULL);

CREATE INDEX ix_subscriptions_remind_at ON public.subscriptions USING btree (remind_at) WHERE (((status)::text = 'pending'::text) AND (remind_at IS NOT NULL));

CREATE INDEX ix_subscriptions_requested ON public.subscriptions USING btree (COALESCE(confirmation_asked_at, created_at)) WHERE ((status)::text = 'pending'::text);

CREATE INDEX ix_subscriptions_status_created_at ON public.subscriptions USING btree (list_id, status, created_at);

CREATE INDEX ix_subscriptions_tag_ids ON public.subscriptions USING gin (tag_ids) WHERE (tag_ids <> '{}'::bigint[]);

CREATE INDEX ix_subscriptions_words ON public.subscriptions USING gin (list_id, casefold(((name)::text COLLATE pg_unicode_fast)) public.gin_trgm_ops, email public.gin_trgm_ops);

CREATE INDEX ix_user_sessions_ended_at ON public.user_sessions USING btree (ended_at) WHERE (ended_at IS NOT NULL);

CREATE INDEX ix_user_sessions_expires_at ON public.user_sessions USING btree (expires_at);

CREATE INDEX ix_user_sessions_user_id ON public.user_sessions USING btree (user_id);

CREATE INDEX ix_webhook_deliveries_created_at ON public.webhook_deliveries USING btree (created_at);

CREATE INDEX ix_webhook_deliveries_endpoint_id_id ON public.webhook_deliveries USING btree (endpoint_id, id DESC);

CREATE INDEX ix_webhook_deliveries_pending ON public.webhook_deliveries USING btree (endpoint_id, id) WHERE ((status)::text = 'pending'::text);

CREATE INDEX ix_webhook_deliveries_person_id ON public.webhook_deliveries USING btree (person_id) WHERE (answer IS NOT NULL);

CREATE INDEX ix_webhook_endpoints_active ON public.webhook_endpoints USING btree (id) WHERE ((state)::text = 'active'::text);

CREATE INDEX ix_webhook_endpoints_deleted_at ON public.webhook_endpoints USING btree (deleted_at) WHERE (deleted_at IS NOT NULL);

CREATE INDEX ix_webhook_endpoints_key_id ON public.webhook_endpoints USING btree (key_id) WHERE (key_id IS NOT NULL);

CREATE INDEX ix_webhook_endpoints_user_id_id ON public.webhook_endpoints USING btree (user_id, id DESC);

CREATE INDEX ix_webhook_secrets_endpoint_id ON public.webhook_secrets USING btree (endpoint_id);

CREATE INDEX ix_webhook_secrets_expires_at ON public.webhook_secrets USING btree (expires_at);

CREATE UNIQUE INDEX uq_credit_entries_topup_order_id ON public.credit_entries USING btree (order_id) WHERE ((action)::text = 'topup'::text);

CREATE UNIQUE INDEX uq_fields_user_id_key ON public.fields USING btree (user_id, key) WHERE (retired_at IS NULL);

CREATE UNIQUE INDEX uq_oauth_grants_user_id_client_id_live ON public.oauth_grants USING btree (user_id, client_id) WHERE (revoked_at IS NULL);

CREATE UNIQUE INDEX uq_webhook_deliveries_endpoint_id_event_id ON public.webhook_deliveries USING btree (endpoint_id, event_id);

CREATE TRIGGER attachments_count_stored AFTER INSERT OR DELETE OR UPDATE OF status, size, renditions ON public.attachments FOR EACH ROW EXECUTE FUNCTION public.count_stored_attachments();

CREATE TRIGGER bulk_actions_count_stored AFTER INSERT OR DELETE OR UPDATE OF filter ON public.bulk_actions FOR EACH ROW EXECUTE FUNCTION public.count_stored_filters();

CREATE TRIGGER credit_entries_stay BEFORE DELETE OR UPDATE OR TRUNCATE ON public.credit_entries FOR EACH STATEMENT EXECUTE FUNCTION public.refuse_ledger_changes();

CREATE TRIGGER erasures_are_noted AFTER UPDATE OF erased_at ON public.users FOR EACH ROW WHEN (((old.erased_at IS NULL) AND (new.erased_at IS NOT NULL))) EXECUTE FUNCTION public.note_erasure();

CREATE TRIGGER events_are_not_truncated BEFORE TRUNCATE ON public.events FOR EACH STATEMENT EXECUTE FUNCTION public.keep_events();

CREATE TRIGGER events_stay BEFORE DELETE OR UPDATE ON public.events FOR EACH ROW EXECUTE FUNCTION public.keep_events();

CREATE TRIGGER exports_count_stored AFTER INSERT OR DELETE OR UPDATE OF size, files_removed_at, filter ON public.exports FOR EACH ROW EXECUTE FUNCTION public.count_stored_exports();

CREATE TRIGGER imports_check_left AFTER DELETE OR UPDATE OF id ON public.imports FOR EACH ROW EXECUTE FUNCTION public.check_left_imports();

CREATE TRIGGER imports_count_stored AFTER INSERT OR DELETE OR UPDATE OF finished_at, chunk_bytes ON public.imports FOR EACH ROW EXECUTE FUNCTION public.count_stored_imports();

CREATE TRIGGER lists_check_left AFTER DELETE OR UPDATE OF id ON public.lists FOR EACH ROW EXECUTE FUNCTION public.check_left_lists();

CREATE TRIGGER opt_outs_are_noted AFTER INSERT ON public.opt_outs REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION public.note_opt_outs();

CREATE TRIGGER payment_events_purged BEFORE DELETE ON public.payment_events FOR EACH ROW EXECUTE FUNCTION public.keep_payment_history();

CREATE TRIGGER payment_events_stay BEFORE UPDATE OR TRUNCATE ON public.payment_events FOR EACH STATEMENT EXECUTE FUNCTION public.refuse_payment_history_changes();

CREATE TRIGGER payment_order_changes_purged BEFORE DELETE ON public.payment_order_changes FOR EACH ROW EXECUTE FUNCTION public.keep_payment_history();

CREATE TRIGGER payment_order_changes_stay BEFORE UPDATE OR TRUNCATE ON public.payment_order_changes FOR EACH STATEMENT EXECUTE FUNCTION public.refuse_payment_history_changes();

CREATE TRIGGER payment_order_transitions_stay BEFORE DELETE OR UPDATE OR TRUNCATE ON public.payment_order_transitions FOR EACH STATEMENT EXECUTE FUNCTION public.refuse_payment_history_changes();

CREATE TRIGGER payment_orders_guarded BEFORE INSERT OR UPDATE ON public.payment_orders FOR EACH ROW EXECUTE FUNCTION public.guard_payment_order();

CREATE TRIGGER payment_orders_noted AFTER INSERT OR UPDATE ON public.payment_orders FOR EACH ROW EXECUTE FUNCTION public.note_payment_order_change();

CREATE TRIGGER payment_orders_purged BEFORE DELETE ON public.payment_orders FOR EACH ROW EXECUTE FUNCTION public.keep_payment_history();

CREATE TRIGGER payment_orders_stay BEFORE TRUNCATE ON public.payment_orders FOR EACH STATEMENT EXECUTE FUNCTION public.refuse_payment_history_changes();

CREATE TRIGGER segments_count_stored AFTER INSERT OR DELETE OR UPDATE OF filter ON public.segments FOR EACH ROW EXECUTE FUNCTION public.count_stored_filters();

CREATE TRIGGER subscriptions_check_changed AFTER UPDATE OF list_id, user_id, import_id ON public.subscriptions FOR EACH ROW WHEN (((new.list_id IS DISTINCT FROM old.list_id) OR (new.user_id IS DISTINCT FROM old.user_id) OR (new.import_id IS DISTINCT FROM old.import_id))) EXECUTE FUNCTION public.check_changed_subscription();

CREATE TRIGGER subscriptions_check_new AFTER INSERT ON public.subscriptions REFERENCING NEW TABLE AS after_it FOR EACH STATEMENT EXECUTE FUNCTION public.check_new_subscriptions();

CREATE TRIGGER subscriptions_count_delete AFTER DELETE ON public.subscriptions REFERENCING OLD TABLE AS before_it FOR EACH STATEMENT EXECUTE FUNCTION public.count_subscribers();

CREATE TRIGGER subscriptions_count_insert AFTER INSERT ON public.subscriptions REFERENCING NEW TABLE AS after_it FOR EACH STATEMENT EXECUTE FUNCTION public.count_subscribers();

CREATE TRIGGER subscriptions_count_update AFTER UPDATE ON public.subscriptions REFERENCING OLD TABLE AS before_it NEW TABLE AS after_it FOR EACH STATEMENT EXECUTE FUNCTION public.count_subscribers();

CREATE TRIGGER users_check_left AFTER DELETE OR UPDATE OF id ON public.users FOR EACH ROW EXECUTE FUNCTION public.check_left_users();

CREATE TRIGGER webhook_deliveries_count_stored AFTER INSERT OR DELETE OR UPDATE OF answer ON public.webhook_deliveries FOR EACH ROW EXECUTE FUNCTION public.count_stored_deliveries();

CREATE TRIGGER webhook_endpoints_delete_deliveries BEFORE DELETE ON public.webhook_endpoints FOR EACH ROW EXECUTE FUNCTION public.delete_deliveries();

ALTER TABLE ONLY public.account_mails
    ADD CONSTRAINT fk_account_mails_user_id FOREIGN KEY (user_id) REFERENCES public.users(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.api_keys
    ADD CONSTRAINT fk_api_keys_maker_id FOREIGN KEY (maker_id) REFERENCES public.api_keys(id);

ALTER TABLE ONLY public.api_keys
    ADD CONSTRAINT fk_api_keys_user_id FOREIGN KEY (user_id) REFERENCES public.users(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.attachments
    ADD CONSTRAINT fk_attachments_user_id FOREIGN KEY (user_id) REFERENCES public.users(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.bulk_actions
    ADD CONSTRAINT fk_bulk_actions_list_id FOREIGN KEY (list_id) REFERENCES public.lists(id);

ALTER TABLE ONLY public.bulk_actions
    ADD CONSTRAINT fk_bulk_actions_user_id FOREIGN KEY (user_id) REFERENCES public.users(id);

ALTER TABLE ONLY public.composer_uses
    ADD CONSTRAINT fk_composer_uses_user_id FOREIGN KEY (user_id) REFERENCES public.users(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.consent_entries
    ADD CONSTRAINT fk_consent_entries_list_id FOREIGN KEY (list_id) REFERENCES public.lists(id);

ALTER TABLE ONLY public.consent_wordings
    ADD CONSTRAINT fk_consent_wordings_list_id FOREIGN KEY (list_id) REFERENCES public.lists(id);

ALTER TABLE ONLY public.credit_accounts
    ADD CONSTRAINT fk_credit_accounts_user_id FOREIGN KEY (user_id) REFERENCES public.users(id);

ALTER TABLE ONLY public.credit_checkpoints
    ADD CONSTRAINT fk_credit_checkpoints_user_id FOREIGN KEY (user_id) REFERENCES public.users(id);

ALTER TABLE ONLY public.credit_entries
    ADD CONSTRAINT fk_credit_entries_order_id FOREIGN KEY (order_id) REFERENCES public.payment_orders(id);

ALTER TABLE ONLY public.credit_entries
    ADD CONSTRAINT fk_credit_entries_user_id FOREIGN KEY (user_id) REFERENCES public.users(id);

ALTER TABLE ONLY public.deleted_tags
    ADD CONSTRAINT fk_deleted_tags_list_id FOREIGN KEY (list_id) REFERENCES public.lists(id);

ALTER TABLE ONLY public.denied_entries
    ADD CONSTRAINT fk_denied_entries_user_id FOREIGN KEY (user_id) REFERENCES public.users(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.erasures
    ADD CONSTRAINT fk_erasures_user_id FOREIGN KEY (user_id) REFERENCES public.users(id);

ALTER TABLE ONLY public.exports
    ADD CONSTRAINT fk_exports_list_id FOREIGN KEY (list_id) REFERENCES public.lists(id);

ALTER TABLE ONLY public.exports
    ADD CONSTRAINT fk_exports_user_id FOREIGN KEY (user_id) REFERENCES public.users(id);

ALTER TABLE ONLY public.fields
    ADD CONSTRAINT fk_fields_user_id FOREIGN KEY (user_id) REFERENCES public.users(id);

ALTER TABLE ONLY public.former_addresses
    ADD CONSTRAINT fk_former_addresses_user_id FOREIGN KEY (user_id) REFERENCES public.users(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.idempotency_records
    ADD CONSTRAINT fk_idempotency_records_caller_id FOREIGN KEY (caller_id) REFERENCES public.users(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.import_changes
    ADD CONSTRAINT fk_import_changes_import_id FOREIGN KEY (import_id) REFERENCES public.imports(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.import_chunks
    ADD CONSTRAINT fk_import_chunks_import_id FOREIGN KEY (import_id) REFERENCES public.imports(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.imports
    ADD CONSTRAINT fk_imports_list_id FOREIGN KEY (list_id) REFERENCES public.lists(id);

ALTER TABLE ONLY public.imports
    ADD CONSTRAINT fk_imports_user_id FOREIGN KEY (user_id) REFERENCES public.users(id);

ALTER TABLE ONLY public.jobs
    ADD CONSTRAINT fk_jobs_user_id FOREIGN KEY (user_id) REFERENCES public.users(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.list_reports
    ADD CONSTRAINT fk_list_reports_list_id FOREIGN KEY (list_id) REFERENCES public.lists(id);

ALTER TABLE ONLY public.list_reports
    ADD CONSTRAINT fk_list_reports_user_id FOREIGN KEY (user_id) REFERENCES public.users(id) ON DELETE SET NULL;

ALTER TABLE ONLY public.lists
    ADD CONSTRAINT fk_lists_user_id FOREIGN KEY (user_id) REFERENCES public.users(id);

ALTER TABLE ONLY public.mailed_links
    ADD CONSTRAINT fk_mailed_links_list_id FOREIGN KEY (list_id) REFERENCES public.lists(id);

ALTER TABLE ONLY public.mailed_links
    ADD CONSTRAINT fk_mailed_links_user_id FOREIGN KEY (user_id) REFERENCES public.users(id);

ALTER TABLE ONLY public.member_days
    ADD CONSTRAINT fk_member_days_list_id FOREIGN KEY (list_id) REFERENCES public.lists(id);

ALTER TABLE ONLY public.named_members
    ADD CONSTRAINT fk_named_members_import_id FOREIGN KEY (import_id) REFERENCES public.imports(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.oauth_codes
    ADD CONSTRAINT fk_oauth_codes_grant_id FOREIGN KEY (grant_id) REFERENCES public.oauth_grants(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.oauth_grants
    ADD CONSTRAINT fk_oauth_grants_client_id FOREIGN KEY (client_id) REFERENCES public.oauth_clients(client_id);

ALTER TABLE ONLY public.oauth_grants
    ADD CONSTRAINT fk_oauth_grants_user_id FOREIGN KEY (user_id) REFERENCES public.users(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.oauth_tokens
    ADD CONSTRAINT fk_oauth_tokens_grant_id FOREIGN KEY (grant_id) REFERENCES public.oauth_grants(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.open_charges
    ADD CONSTRAINT fk_open_charges_entry_id FOREIGN KEY (entry_id) REFERENCES public.credit_entries(id);

ALTER TABLE ONLY public.opt_outs
    ADD CONSTRAINT fk_opt_outs_list_id FOREIGN KEY (list_id) REFERENCES public.lists(id);

ALTER TABLE ONLY public.opt_outs
    ADD CONSTRAINT fk_opt_outs_user_id FOREIGN KEY (user_id) REFERENCES public.users(id);

ALTER TABLE ONLY public.passkeys
    ADD CONSTRAINT fk_passkeys_user_id FOREIGN KEY (user_id) REFERENCES public.users(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.payment_events
    ADD CONSTRAINT fk_payment_events_order_id FOREIGN KEY (order_id) REFERENCES public.payment_orders(id);

ALTER TABLE ONLY public.payment_order_changes
    ADD CONSTRAINT fk_payment_order_changes_order_id FOREIGN KEY (order_id) REFERENCES public.payment_orders(id);

ALTER TABLE ONLY public.payment_orders
    ADD CONSTRAINT fk_payment_orders_user_id FOREIGN KEY (user_id) REFERENCES public.users(id);

ALTER TABLE ONLY public.recovery_codes
    ADD CONSTRAINT fk_recovery_codes_user_id FOREIGN KEY (user_id) REFERENCES public.users(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.segments
    ADD CONSTRAINT fk_segments_list_id FOREIGN KEY (list_id) REFERENCES public.lists(id);

ALTER TABLE ONLY public.storage_uses
    ADD CONSTRAINT fk_storage_uses_user_id FOREIGN KEY (user_id) REFERENCES public.users(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.subscriber_counts
    ADD CONSTRAINT fk_subscriber_counts_list_id FOREIGN KEY (list_id) REFERENCES public.lists(id);

ALTER TABLE ONLY public.subscription_events
    ADD CONSTRAINT fk_subscription_events_list_id FOREIGN KEY (list_id) REFERENCES public.lists(id);

ALTER TABLE ONLY public.subscription_events
    ADD CONSTRAINT fk_subscription_events_user_id FOREIGN KEY (user_id) REFERENCES public.users(id);

ALTER TABLE ONLY public.subscriptions
    ADD CONSTRAINT fk_subscriptions_import_id FOREIGN KEY (import_id) REFERENCES public.imports(id) NOT ENFORCED;

ALTER TABLE ONLY public.subscriptions
    ADD CONSTRAINT fk_subscriptions_list_id FOREIGN KEY (list_id) REFERENCES public.lists(id) NOT ENFORCED;

ALTER TABLE ONLY public.subscriptions
    ADD CONSTRAINT fk_subscriptions_user_id FOREIGN KEY (user_id) REFERENCES public.users(id) NOT ENFORCED;

ALTER TABLE ONLY public.tags
    ADD CONSTRAINT fk_tags_list_id FOREIGN KEY (list_id) REFERENCES public.lists(id);

ALTER TABLE ONLY public.totp_secrets
    ADD CONSTRAINT fk_totp_secrets_user_id FOREIGN KEY (user_id) REFERENCES public.users(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.user_sessions
    ADD CONSTRAINT fk_user_sessions_user_id FOREIGN KEY (user_id) REFERENCES public.users(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.waiting_chunks
    ADD CONSTRAINT fk_waiting_chunks_import_id FOREIGN KEY (import_id) REFERENCES public.imports(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.webhook_deliveries
    ADD CONSTRAINT fk_webhook_deliveries_endpoint_id FOREIGN KEY (endpoint_id) REFERENCES public.webhook_endpoints(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.webhook_endpoints
    ADD CONSTRAINT fk_webhook_endpoints_key_id FOREIGN KEY (key_id) REFERENCES public.api_keys(id) ON DELETE SET NULL;

ALTER TABLE ONLY public.webhook_endpoints
    ADD CONSTRAINT fk_webhook_endpoints_list_id FOREIGN KEY (list_id) REFERENCES public.lists(id);

ALTER TABLE ONLY public.webhook_endpoints
    ADD CONSTRAINT fk_webhook_endpoints_user_id FOREIGN KEY (user_id) REFERENCES public.users(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.webhook_secrets
    ADD CONSTRAINT fk_webhook_secrets_endpoint_id FOREIGN KEY (endpoint_id) REFERENCES public.webhook_endpoints(id) ON DELETE CASCADE;

INSERT INTO public.feed_offsets (id, places) VALUES (1, 0);

INSERT INTO public.payment_order_transitions (from_status, to_status) VALUES
    ('created', 'pending'),
    ('created', 'failed'),
    ('pending', 'paid'),
    ('pending', 'paid_unclaimed'),
    ('pending', 'failed'),
    ('pending', 'expired'),
    ('pending', 'review'),
    ('expired', 'paid'),
    ('expired', 'paid_unclaimed'),
    ('expired', 'review'),
    ('paid_unclaimed', 'paid'),
    ('paid_unclaimed', 'refunded'),
    ('paid_unclaimed', 'disputed'),
    ('paid_unclaimed', 'review'),
    ('paid', 'refunded'),
    ('paid', 'disputed'),
    ('disputed', 'paid'),
    ('disputed', 'refunded'),
    ('review', 'paid'),
    ('review', 'paid_unclaimed'),
    ('review', 'refunded'),
    -- A refund that failed leaves the money with the seller, so the order counts as paid again.
    ('refunded', 'paid'),
    ('refunded', 'paid_unclaimed'),
    -- An order that failed and was paid all the same goes to review.
    ('failed', 'review');
