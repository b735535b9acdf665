"""Departures: each opt-out and each erasure leaves a row for the journal beside the backups.

Safe under running code: add before you use, stop using before you remove, and never rewrite or
scan a large table under a lock.
"""

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0026f"
branch_labels = None
depends_on = None

# Once a statement: an import may write thousands of opt-outs with one. The release before fires
# these too. They have the rights of the role that opts out or erases.
NOTE_OPT_OUTS = """
CREATE FUNCTION note_opt_outs() RETURNS trigger LANGUAGE plpgsql
SET search_path = public, pg_temp AS $$
BEGIN
    INSERT INTO departures (kind, list_id, user_id, address_hmac, source)
    SELECT kind, list_id, user_id, address_hmac, source FROM added;
    RETURN NULL;
END
$$
"""
NOTE_ERASURE = """
CREATE FUNCTION note_erasure() RETURNS trigger LANGUAGE plpgsql
SET search_path = public, pg_temp AS $$
BEGIN
    INSERT INTO departures (kind, user_id) VALUES ('erased', NEW.id);
    RETURN NULL;
END
$$
"""


def upgrade() -> None:
    op.create_table(
        "departures",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("list_id", sa.BigInteger(), nullable=True),
        sa.Column("user_id", sa.BigInteger(), nullable=True),
        sa.Column("address_hmac", sa.LargeBinary(), nullable=True),
        sa.Column("source", sa.String(), nullable=True),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.CheckConstraint(
            "kind IN ('list', 'email', 'erased')", name=op.f("ck_departures_kind_known")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_departures")),
    )
    # Emptied all the time: dead rows are read by each look until a vacuum.
    op.execute("ALTER TABLE departures SET (autovacuum_vacuum_scale_factor = 0.01)")
    op.execute(NOTE_OPT_OUTS)
    op.execute(NOTE_ERASURE)
    op.execute(
        "CREATE TRIGGER opt_outs_are_noted AFTER INSERT ON opt_outs REFERENCING NEW TABLE AS added"
        " FOR EACH STATEMENT EXECUTE FUNCTION note_opt_outs()"
    )
    op.execute(
        "CREATE TRIGGER erasures_are_noted AFTER UPDATE OF erased_at ON users FOR EACH ROW"
        " WHEN (OLD.erased_at IS NULL AND NEW.erased_at IS NOT NULL)"
        " EXECUTE FUNCTION note_erasure()"
    )


def downgrade() -> None:
    op.execute("DROP TRIGGER erasures_are_noted ON users")
    op.execute("DROP TRIGGER opt_outs_are_noted ON opt_outs")
    op.execute("DROP FUNCTION note_erasure()")
    op.execute("DROP FUNCTION note_opt_outs()")
    op.drop_table("departures")
