"""All tables, so that the migrations see every one of them."""

from models.api_key import ApiKey
from models.attachment import Attachment, AttachmentStatus
from models.idempotency_record import IdempotencyRecord
from models.job import FINISHED, Job, JobStatus
from models.mailing_list import MailingList
from models.metadata import Model
from models.user import Plan, User

__all__ = [
    "FINISHED",
    "ApiKey",
    "Attachment",
    "AttachmentStatus",
    "IdempotencyRecord",
    "Job",
    "JobStatus",
    "MailingList",
    "Model",
    "Plan",
    "User",
]
