from core.errors import DomainError
from core.refusals.mailing import LIST_NOT_FOUND, LIST_NOT_OWNER
from models import MailingList
from services.access.caller import Caller
from services.mailing import lists
from storage.unit_of_work import UnitOfWork


def own_list(uow: UnitOfWork, caller: Caller, list_id: int) -> MailingList:
    """The caller's list. Another owner's is ``list.not_found``: the console shows none of it."""
    try:
        return lists.owned(uow, caller, list_id)
    except DomainError as error:
        if error.code != LIST_NOT_OWNER.code:
            raise
        raise LIST_NOT_FOUND() from None
