"""Each table is in the registry of retention, and the operator's page says the same."""

import itertools
import json
import re
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import ColumnElement, func, literal_column, select
from sqlalchemy.dialects import postgresql

from core.settings.retention_days import (
    DEFAULT_RETENTION,
    LEAST_DAYS,
    Retained,
    parse_retention,
)
from models.declarative import Model
from services.jobs.records import KEPT_FOR_RETRY
from services.mailing.bulk_files import BULK_FILE_RETENTION
from services.people.mailed_tokens import LIFETIMES, Purpose
from services.retention.kept import KEPT_FOR_GOOD, KEPT_UNTIL, RULES
from services.retention.overdue import overdue_of
from services.retention.purging import purge_outlived
from services.retention.rules import Rule, past
from tests.docs.markdown import ROOT
from tests.services.retention.aged_rows import INSERTS, AgedRows
from tests.stack import Stack
