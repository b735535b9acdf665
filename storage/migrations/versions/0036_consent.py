"""Consent: how members agreed, what files claim of it, and the wordings of lists.

Safe under running code: add before you use, stop using before you remove, and never rewrite or
scan a large table under a lock. The release before knows nothing of it: members who join by it have
no entry, and its erasures are gone through once more by this release.
"""

import sqlalchemy as sa
from alembic import op

revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None

_HOW = "how IN ('form', 'confirmation', 'login', 'link', 'owner', 'import', 'transfer')"
_WHOLE_IP = sa.text("strpos(ip, '/') = 0")

# The /24 of an IPv4 address, the /48 of an IPv6 address, and nothing of a text that is none.
NETWORK = """
CREATE FUNCTION network_of_ip(ip text) RETURNS text LANGUAGE plpgsql STABLE
SET search_path = public, pg_temp AS $$
BEGIN
    -- Not in one expression, whose parts may be computed before the condition is.
    IF NOT pg_input_is_valid(ip, 'inet') THEN
        RETURN NULL;
    END IF;
    RETURN text(network(
        set_masklen(ip::inet, CASE family(ip::inet) WHEN 4 THEN 24 ELSE 48 END)));
END
$$
"""

# The role of our processes may add rows and read them. What else becomes of a row is done by these
# functions of the owner's, and none of them writes a value of the caller's.
SHORTEN = """
CREATE FUNCTION shorten_consent_ips(days integer, most integer) RETURNS bigint LANGUAGE plpgsql
SECURITY DEFINER SET search_path = public, pg_temp AS $$
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
$$
"""

# Of a person who is erased, or is not there any more: what shows how they agreed, and the wordings
# of the lists that they owned. OFFSET 0 makes Postgres look up one subscription at a time.
ERASE = """
CREATE FUNCTION erase_consent(people bigint[], most integer) RETURNS bigint LANGUAGE plpgsql
SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    gone bigint[] := ARRAY(
        SELECT person FROM unnest(people) AS person WHERE NOT EXISTS (
            SELECT FROM users WHERE id = person AND erased_at IS NULL));
    entries bigint;
    claims bigint;
    wordings bigint;
BEGIN
    DELETE FROM consent_entries WHERE id = ANY(ARRAY(
        SELECT id FROM consent_entries WHERE user_id = ANY(gone) LIMIT most));
    GET DIAGNOSTICS entries = ROW_COUNT;
    DELETE FROM consent_claims WHERE ctid = ANY(ARRAY(
        SELECT claim.place FROM subscriptions AS m CROSS JOIN LATERAL (
            SELECT ctid AS place FROM consent_claims WHERE subscription_id = m.id OFFSET 0 FOR UPDATE
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
$$
"""

TAKE_BACK = """
CREATE FUNCTION take_back_claims(of_import bigint, most integer) RETURNS bigint LANGUAGE plpgsql
SECURITY DEFINER SET search_path = public, pg_temp AS $$
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
$$
"""


def upgrade() -> None:
    op.create_table(
        "consent_wordings",
        sa.Column("list_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("version", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("wording", sa.String(), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.CheckConstraint(
            "char_length(wording) <= 2000", name=op.f("ck_consent_wordings_wording_bounded")
        ),
        sa.ForeignKeyConstraint(
            ["list_id"], ["lists.id"], name=op.f("fk_consent_wordings_list_id")
        ),
        sa.PrimaryKeyConstraint("list_id", "version", name=op.f("pk_consent_wordings")),
    )
    op.add_column("lists", sa.Column("consent_wording_version", sa.BigInteger(), nullable=True))
    op.create_table(
        "consent_entries",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("list_id", sa.BigInteger(), nullable=False),
        sa.Column("user_id", sa.BigInteger(), nullable=False),
        sa.Column("how", sa.String(), nullable=False),
        sa.Column(
            "occurred_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column("ip", sa.String(), nullable=True),
        sa.Column("url", sa.String(), nullable=True),
        sa.Column("browser", sa.String(), nullable=True),
        sa.Column("wording_version", sa.BigInteger(), nullable=True),
        sa.Column("of_list_id", sa.BigInteger(), nullable=True),
        sa.Column("import_id", sa.BigInteger(), nullable=True),
        sa.CheckConstraint(_HOW, name=op.f("ck_consent_entries_how_known")),
        sa.CheckConstraint("char_length(ip) <= 50", name=op.f("ck_consent_entries_ip_bounded")),
        sa.CheckConstraint("char_length(url) <= 2048", name=op.f("ck_consent_entries_url_bounded")),
        sa.CheckConstraint(
            "char_length(browser) <= 100", name=op.f("ck_consent_entries_browser_bounded")
        ),
        sa.ForeignKeyConstraint(["list_id"], ["lists.id"], name=op.f("fk_consent_entries_list_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_consent_entries")),
    )
    op.create_index(
        "ix_consent_entries_user_id_list_id_id", "consent_entries", ["user_id", "list_id", "id"]
    )
    op.create_index(
        "ix_consent_entries_whole_ip",
        "consent_entries",
        ["occurred_at"],
        postgresql_where=_WHOLE_IP,
    )
    _create_claims()
    for function in (NETWORK, SHORTEN, ERASE, TAKE_BACK):
        op.get_bind().exec_driver_sql(function)


def _create_claims() -> None:
    op.create_table(
        "consent_claims",
        sa.Column("import_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("subscription_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("how", sa.String(), nullable=False),
        sa.Column("occurred_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ip", sa.String(), nullable=True),
        sa.Column("url", sa.String(), nullable=True),
        sa.Column("wording", sa.String(), nullable=True),
        sa.Column("claimed_by", sa.String(), nullable=False),
        sa.Column("of_list_id", sa.BigInteger(), nullable=True),
        sa.CheckConstraint(_HOW, name=op.f("ck_consent_claims_how_known")),
        sa.CheckConstraint("char_length(ip) <= 50", name=op.f("ck_consent_claims_ip_bounded")),
        sa.CheckConstraint("char_length(url) <= 2048", name=op.f("ck_consent_claims_url_bounded")),
        sa.CheckConstraint(
            "char_length(wording) <= 2000", name=op.f("ck_consent_claims_wording_bounded")
        ),
        sa.CheckConstraint(
            "char_length(claimed_by) BETWEEN 1 AND 100",
            name=op.f("ck_consent_claims_claimed_by_bounded"),
        ),
        sa.PrimaryKeyConstraint(
            "import_id", "subscription_id", "how", name=op.f("pk_consent_claims")
        ),
    )
    op.create_index("ix_consent_claims_subscription_id", "consent_claims", ["subscription_id"])
    op.create_index(
        "ix_consent_claims_whole_ip", "consent_claims", ["occurred_at"], postgresql_where=_WHOLE_IP
    )


def downgrade() -> None:
    for function in (
        "take_back_claims(bigint, integer)",
        "erase_consent(bigint[], integer)",
        "shorten_consent_ips(integer, integer)",
        "network_of_ip(text)",
    ):
        op.execute(f"DROP FUNCTION {function}")
    op.drop_table("consent_claims")
    op.drop_table("consent_entries")
    op.drop_column("lists", "consent_wording_version")
    op.drop_table("consent_wordings")
