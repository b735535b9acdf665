"""Add the table address_opt_outs.

Release 1.1.0 stores the opt-out of an address that belongs to no member once per list, in opt_outs,
where it stays valid. Release 1.1.0 doesn't read address_opt_outs, so its processes may add such an
address to a list until they are replaced. Rosters of the next release still omit the address.
"""

from alembic import op

revision = "0126"
down_revision = "0125"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
    CREATE TABLE address_opt_outs (
        user_id bigint NOT NULL,
        address_hmac bytea NOT NULL,
        list_ids bigint[] NOT NULL,
        source character varying NOT NULL,
        created_at timestamp with time zone DEFAULT now() NOT NULL,
        updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
        is_journaled boolean DEFAULT false NOT NULL,
        CONSTRAINT pk_address_opt_outs PRIMARY KEY (user_id, address_hmac),
        CONSTRAINT ck_address_opt_outs_hmac_length CHECK (octet_length(address_hmac) = 32),
        CONSTRAINT fk_address_opt_outs_user_id FOREIGN KEY (user_id)
            REFERENCES users(id) ON DELETE CASCADE
    )
    """)
    op.execute(
        "CREATE INDEX ix_address_opt_outs_unjournaled ON address_opt_outs (updated_at)"
        " WHERE NOT is_journaled"
    )
