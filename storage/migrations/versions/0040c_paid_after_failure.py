"""An order that failed and was paid all the same goes to review.

The release before has no rule that leads there, so its processes leave such an order as it is.
"""

from alembic import op

revision = "0040c"
down_revision = "0040b"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("INSERT INTO payment_order_transitions VALUES ('failed', 'review')")


def downgrade() -> None:
    """The history of an order may have this step, so it stays allowed."""
