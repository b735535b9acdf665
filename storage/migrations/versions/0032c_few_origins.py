"""A list has few origins to which its sign-up form may lead back.

Checked beside running code, so apart from the migration before it.
"""

from alembic import op

from storage.migrations import online

revision = "0032c"
down_revision = "0032b"
branch_labels = None
depends_on = None

NAME = "ck_lists_redirect_origins_few"


def upgrade() -> None:
    online.add_constraint("lists", NAME, "CHECK (cardinality(redirect_origins) <= 10)")


def downgrade() -> None:
    op.drop_constraint(op.f(NAME), "lists")
