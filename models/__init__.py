"""All tables, so that the migrations see every one of them."""

from models.api_key import ApiKey
from models.attachment import Attachment, AttachmentStatus
from models.idempotency_record import IdempotencyRecord
from models.job import FINISHED, Job, JobStatus
from models.mailed_link import MailedLink
from models.mailing_list import MailingList
from models.metadata import Model
from models.opt_out import OptOut, OptOutKind
from models.subscriber_count import SubscriberCount, SubscriberDelta
from models.subscription import Subscription, SubscriptionStatus, Tier
from models.subscription_event import SubscriptionEvent
from models.user import Plan, User

__all__ = [
    "FINISHED",
    "ApiKey",
    "Attachment",
    "AttachmentStatus",
    "IdempotencyRecord",
    "Job",
    "JobStatus",
    "MailedLink",
    "MailingList",
    "Model",
    "OptOut",
    "OptOutKind",
    "Plan",
    "SubscriberCount",
    "SubscriberDelta",
    "Subscription",
    "SubscriptionEvent",
    "SubscriptionStatus",
    "Tier",
    "User",
]
