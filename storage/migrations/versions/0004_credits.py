"""credits

Safe under running code: add before you use, stop using before you remove, and never rewrite or
scan a large table under a lock.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


# What an entry says, in one spelling, chained to the entry before: whoever changes one must change
# all that follow, and the account, which `pressroom credits verify` compares.
ENTRY_HASH = """
CREATE FUNCTION credit_entry_hash(before bytea, e credit_entries) RETURNS bytea
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT sha256(before || convert_to(jsonb_build_array(
        e.user_id, e.seq, e.order_id, e.action, e.amount::text, e.delta::text,
        e.balance_after::text, e.rate_usd_to_credit::text, e.currency, e.source_type, e.source_id,
        e.meta, (extract(epoch FROM e.created_at) * 1000000)::bigint
    )::text, 'UTF8'))
$$
"""

# As callers see an entry: its numbers keep their four decimals.
ENTRY_JSON = """
CREATE FUNCTION credit_entry_json(e credit_entries) RETURNS jsonb
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT jsonb_build_object(
        'id', e.id, 'seq', e.seq, 'user_id', e.user_id, 'order_id', e.order_id,
        'action', e.action, 'amount_credit', e.amount, 'delta_credit', e.delta,
        'balance_after', e.balance_after, 'rate_usd_to_credit', e.rate_usd_to_credit,
        'currency', e.currency, 'source_type', e.source_type, 'source_id', e.source_id,
        'meta', e.meta, 'created_at',
        to_char(e.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))
$$
"""

# The one way a balance moves: under the account's lock, beside an entry, never below zero. No row
# comes back when it would be.
APPEND = """
CREATE FUNCTION credit_append(
    p_user_id bigint, p_action text, p_amount numeric, p_delta numeric, p_source_type text,
    p_source_id text, p_meta jsonb, p_order_id bigint, p_rate numeric, p_currency text
) RETURNS SETOF credit_entries LANGUAGE plpgsql AS $$
DECLARE
    account credit_accounts;
    entry credit_entries;
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
    UPDATE credit_accounts SET balance = entry.balance_after, last_seq = entry.seq,
        last_hash = entry.hash, updated_at = entry.created_at
    WHERE user_id = p_user_id;
    RETURN NEXT entry;
END
$$
"""

# A charge and its idempotency record, or what an equal request was answered, in one round trip.
# The account's lock comes first: two requests of one caller under one key take turns. Whoever has no
# account has nothing to lock, nothing to spend, and no charge to repeat.
CONSUME = """
CREATE FUNCTION credit_consume(
    p_user_id bigint, p_amount numeric, p_source_id text, p_meta jsonb,
    p_route text, p_key text, p_fingerprint bytea
) RETURNS TABLE (outcome text, answer text) LANGUAGE plpgsql AS $$
DECLARE
    known record;
    entry credit_entries;
    said jsonb;
BEGIN
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
$$
"""

REFUSE_CHANGES = """
CREATE FUNCTION refuse_ledger_changes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'entries of the ledger are never changed or deleted'
        USING ERRCODE = 'restrict_violation';
END
$$
"""


def upgrade() -> None:
    op.create_table(
        "credit_accounts",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("user_id", sa.BigInteger(), nullable=False),
        sa.Column(
            "balance",
            sa.Numeric(precision=15, scale=4),
            server_default=sa.text("0"),
            nullable=False,
        ),
        sa.Column(
            "debt", sa.Numeric(precision=15, scale=4), server_default=sa.text("0"), nullable=False
        ),
        sa.Column("status", sa.String(), server_default="active", nullable=False),
        sa.Column("last_seq", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("last_hash", sa.LargeBinary(), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column(
            "updated_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.CheckConstraint("balance >= 0", name=op.f("ck_credit_accounts_never_negative")),
        sa.CheckConstraint("debt >= 0", name=op.f("ck_credit_accounts_debt_never_negative")),
        sa.CheckConstraint(
            "octet_length(last_hash) = 32", name=op.f("ck_credit_accounts_hash_length")
        ),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_credit_accounts_user_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_credit_accounts")),
        sa.UniqueConstraint("user_id", name=op.f("uq_credit_accounts_user_id")),
    )
    op.create_table(
        "credit_entries",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("user_id", sa.BigInteger(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("order_id", sa.BigInteger(), nullable=True),
        sa.Column("action", sa.String(), nullable=False),
        sa.Column("amount", sa.Numeric(precision=15, scale=4), nullable=False),
        sa.Column("delta", sa.Numeric(precision=15, scale=4), nullable=False),
        sa.Column("balance_after", sa.Numeric(precision=15, scale=4), nullable=False),
        sa.Column("rate_usd_to_credit", sa.Numeric(precision=15, scale=4), nullable=True),
        sa.Column("currency", sa.String(), nullable=True),
        sa.Column("source_type", sa.String(), nullable=False),
        sa.Column("source_id", sa.String(), nullable=False),
        sa.Column(
            "meta", postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), nullable=True
        ),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.CheckConstraint(
            "action IN ('topup', 'consume', 'consume_reversal', 'topup_refund', 'grant', 'adjust', 'debt_payment')",
            name=op.f("ck_credit_entries_action_known"),
        ),
        sa.CheckConstraint(
            "abs(delta) = amount OR delta = 0",
            name=op.f("ck_credit_entries_delta_is_signed_amount"),
        ),
        sa.CheckConstraint("amount > 0", name=op.f("ck_credit_entries_amount_positive")),
        sa.CheckConstraint("balance_after >= 0", name=op.f("ck_credit_entries_never_negative")),
        sa.CheckConstraint("seq > 0", name=op.f("ck_credit_entries_seq_positive")),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_credit_entries_user_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_credit_entries")),
        sa.UniqueConstraint("user_id", "seq", name=op.f("uq_credit_entries_user_id_seq")),
    )
    op.create_index(
        "uq_credit_entries_topup_order_id",
        "credit_entries",
        ["order_id"],
        unique=True,
        postgresql_where=sa.text("action = 'topup'"),
    )
    for statement in (ENTRY_HASH, ENTRY_JSON, APPEND, CONSUME, REFUSE_CHANGES):
        op.execute(statement)
    op.execute(
        "CREATE TRIGGER credit_entries_stay BEFORE UPDATE OR DELETE OR TRUNCATE ON credit_entries "
        "FOR EACH STATEMENT EXECUTE FUNCTION refuse_ledger_changes()"
    )
