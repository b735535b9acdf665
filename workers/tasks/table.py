"""Every task of the product, and the function that does its work.

A job's task has the name of its kind. Messages under way carry these names: they don't change.
"""

from collections.abc import Callable

from integrations.mail.port import Mailer
from services import removals
from services.backup import creating, journal
from services.backup.creating import MAKE_BACKUP
from services.backup.journal import WRITE_JOURNAL
from services.composer.metadata_requests import MetadataRequest
from services.composer.photos import PhotoSearch, PhotoUse
from services.erasure import erasing
from services.erasure.marking import ERASE_PERSON
from services.jobs.lease import Lease
from services.mailing import bulk_files, exports, subscriber_counts
from services.mailing.addresses import shown_addresses
from services.mailing.addresses.shown_addresses import SHOW_ADDRESS
from services.mailing.bulk_acts import acting, undoing
from services.mailing.bulk_acts.acting import CHANGE_MEMBERS
from services.mailing.bulk_acts.undoing import UNDO_BULK_ACT
from services.mailing.bulk_files import SWEEP_FILES
from services.mailing.exports import EXPORT_JOBS
from services.mailing.imports import import_jobs, undo
from services.mailing.imports.applying import helpers
from services.mailing.imports.applying.helpers import APPLY_CHUNKS
from services.mailing.imports.import_jobs import ADD_MEMBERS, IMPORT_FILE, IMPORT_SUPPRESSIONS
from services.mailing.imports.undo import UNDO_IMPORT
from services.mailing.preferences import link_mails
from services.mailing.preferences.link_mails import MAIL_PREFERENCES
from services.mailing.subscriber_counts import FOLD_COUNTS
from services.mailing.subscriptions import mails, unsubscribe
from services.mailing.subscriptions.subscribe import MAIL_CONFIRMATION, MAIL_WELCOME
from services.mailing.subscriptions.unsubscribe import FOLLOW_OPT_OUT
from services.media.attachments import processing, strays
from services.media.attachments.strays import SWEEP_UPLOADS
from services.media.attachments.upload import PROCESS_ATTACHMENT
from services.merging import merge_turns
from services.money.credits import verify
from services.money.credits.verify import VERIFY_LEDGER
from services.money.topups import checkout, polling
from services.money.topups.checkout import OPEN_CHECKOUT
from services.money.topups.polling import POLL_ORDERS, REFRESH_ORDER
from services.people import account_mails
from services.people.account_mails import SEND_ACCOUNT_MAIL
from services.people.account_merges.merge_jobs import MERGE_RECORDS
from services.removals import REMOVE_OBJECTS
from services.retention import ip_addresses, partitions, purging, strangers
from services.retention.ip_addresses import SHORTEN_IP_ADDRESSES
from services.retention.partitions import KEEP_PARTITIONS
from services.retention.purging import PURGE
from services.retention.strangers import PURGE_STRANGERS
from services.webhooks import sending
from services.webhooks.sending import SEND_EVENTS
from storage.resources import Resources
from workers.declaration import TaskTable
from workers.running.attempts import JobWork
from workers.running.upkeep_runner import PeriodicWork
from workers.tasks import composer


def _alone(run: Callable[[Resources, Lease], bool | None]) -> JobWork:
    return lambda worker, lease: run(worker.resources, lease)


def _mailing(send: Callable[[Resources, Lease, Mailer], None]) -> JobWork:
    return lambda worker, lease: send(worker.resources, lease, worker.mailer)


def _swept(sweep: Callable[..., int]) -> PeriodicWork:
    return lambda worker, began_at: sweep(worker.resources, now=began_at)


TASKS = TaskTable(
    jobs={
        PROCESS_ATTACHMENT: lambda worker, lease: processing.process(
            worker.resources, lease, worker.converter
        ),
        SEND_ACCOUNT_MAIL: _mailing(account_mails.send),
        MAIL_CONFIRMATION: _mailing(mails.send_confirmation),
        MAIL_WELCOME: _mailing(mails.send_welcome),
        MAIL_PREFERENCES: _mailing(link_mails.send),
        ADD_MEMBERS: _alone(import_jobs.run),
        IMPORT_FILE: _alone(import_jobs.run),
        IMPORT_SUPPRESSIONS: _alone(import_jobs.run),
        APPLY_CHUNKS: _alone(helpers.run),
        UNDO_IMPORT: _alone(undo.run),
        CHANGE_MEMBERS: _alone(acting.run),
        UNDO_BULK_ACT: _alone(undoing.run),
        **dict.fromkeys(EXPORT_JOBS.values(), _alone(exports.run)),
        FOLLOW_OPT_OUT: _alone(unsubscribe.follow),
        ERASE_PERSON: _alone(erasing.run),
        MERGE_RECORDS: _alone(merge_turns.run),
        SHOW_ADDRESS: _alone(shown_addresses.run),
        SEND_EVENTS: lambda worker, lease: sending.run(worker.resources, lease, worker.receivers),
        OPEN_CHECKOUT: lambda worker, lease: checkout.open_checkout(
            worker.resources, worker.payments, lease
        ),
    },
    requests={
        MetadataRequest.kind: composer.write,
        PhotoSearch.kind: composer.search,
        PhotoUse.kind: composer.download_url,
        REFRESH_ORDER: lambda worker, lease: {
            "status": polling.refresh(worker.resources, worker.payments, lease.payload["order_id"])
        },
    },
    upkeep={
        # Settles orders whose webhook never came, and ends orders that were not paid in time.
        POLL_ORDERS: lambda worker, _: polling.poll(worker.resources, worker.payments),
        # Removes objects that committed transactions have forgotten.
        REMOVE_OBJECTS: lambda worker, _: removals.work_off(worker.resources),
        # Removes uploads that no attachment waits for any more, such as after a crash.
        SWEEP_UPLOADS: _swept(strays.sweep_uploads),
        # Removes files of imports and exports past their time, and files that a crash left.
        SWEEP_FILES: _swept(bulk_files.sweep),
        # Makes partitions ahead of time, and drops those whose rows outlived theirs.
        KEEP_PARTITIONS: lambda worker, _: partitions.keep(worker.resources),
        PURGE: lambda worker, _: purging.purge_outlived(worker.resources),
        SHORTEN_IP_ADDRESSES: lambda worker, _: ip_addresses.shorten(worker.resources),
        # Deletes unpaid orders, requests that nobody confirmed, and people whom no row refers to.
        PURGE_STRANGERS: _swept(strangers.purge),
        # Verifies what the ledger has got since the last time.
        VERIFY_LEDGER: lambda worker, _: verify.verify_daily(worker.resources),
        # Tells who left and who was erased, beside the backups.
        WRITE_JOURNAL: lambda worker, _: journal.write(worker.resources),
        MAKE_BACKUP: lambda worker, began_at: creating.make_if_due(worker.resources, began_at),
        FOLD_COUNTS: lambda worker, _: subscriber_counts.fold_all(worker.resources),
    },
)
