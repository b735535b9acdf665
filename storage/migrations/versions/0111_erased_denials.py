"""Add the table erased_denials.

Release 1.0.0 doesn't use the table erased_denials. When release 1.0.0 erases a person, it deletes
the person's deny list entries.
"""

from alembic import op

revision = "0111"
down_revision = "0110"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
    CREATE TABLE erased_denials (
        user_id bigint NOT NULL,
        address_hmac bytea NOT NULL,
        CONSTRAINT pk_erased_denials PRIMARY KEY (user_id, address_hmac),
        CONSTRAINT ck_erased_denials_hmac_length CHECK (octet_length(address_hmac) = 32),
        CONSTRAINT fk_erased_denials_user_id FOREIGN KEY (user_id)
            REFERENCES users(id) ON DELETE CASCADE
    )
    """)
