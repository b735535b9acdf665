"""What is kept so that an act of an owner on many members can be taken back."""

from datetime import timedelta

from sqlalchemy import inspect

import models
from core.settings.retention_days import Retained
from services.mailing.bulk_acts.bulk_records import BULK_UNDO_TIME
from services.retention.partitions import OTHERS_END_WITHIN, TURNS, UNDO_LASTS
from services.retention.retention_rules import Rule

_SINCE = "since an undo needs them, and 37 days longer at most while they share a partition with"

UNDO_RULES = (
    Rule(
        "import_changes",
        models.ImportChange,
        Retained.IMPORT_CHANGES,
        f"after the import, {_SINCE} younger ones",
        models.ImportChange.applied_at,
        oldest_by=tuple(inspect(models.ImportChange).primary_key),
        is_purged=False,
        longer=TURNS["import_changes"] + UNDO_LASTS + OTHERS_END_WITHIN,
    ),
    Rule(
        "bulk_changes",
        models.BulkChange,
        BULK_UNDO_TIME,
        f"after the act, {_SINCE} younger ones",
        models.BulkChange.applied_at,
        oldest_by=tuple(inspect(models.BulkChange).primary_key),
        is_purged=False,
        longer=TURNS["bulk_changes"] + UNDO_LASTS + OTHERS_END_WITHIN,
    ),
    Rule(
        "bulk_acts",
        models.BulkAct,
        timedelta(days=365),  # longer than what they changed
        "after its end, or until its owner is erased",
        models.BulkAct.finished_at,
    ),
)
