"""Imports the modules that register kinds of work."""

# ruff: noqa: F401

from services import removals, store_checks
from services.accounts import account_mails
from services.attachments import strays, thumbnails, upload
from services.backup import creating, journal
from services.composer import photos, writing_work
from services.credits import checkout, low_balance_mails, own_charges, polling, verify
from services.doctor import operator_mail
from services.engagement import upkeep
from services.privacy import erasure, expired_rows, ip_addresses, strangers
from services.senders import applying, silence
from services.subscriptions import (
    bulk_files,
    count_merging,
    deleted_tags,
    exports,
    member_addresses,
)
from services.subscriptions.bulk_actions import actions, undo
from services.subscriptions.imports import helper, import_job
from services.subscriptions.imports import undo as import_undo
from services.subscriptions.members import mails, unsubscribe
from services.subscriptions.preferences import link_mails
from services.subscriptions.watches import comparing
from services.subscriptions.watches import upkeep as watches_upkeep
from services.webhooks import endpoints_of_keys, sending
