"""Custom fields that an owner creates for the members of mailing lists."""

from devstack.harness.stack import Owner
from models import FieldType
from services.subscriptions import fields
from storage.resources import Resources


def create_company_and_age(resources: Resources, owner: Owner) -> dict[str, int]:
    types = {"company": FieldType.TEXT, "age": FieldType.NUMBER}
    with resources.unit_of_work() as uow:
        return {
            key: fields.create_field(uow, owner.account_id, type=type_, key=key, label=key).id
            for key, type_ in types.items()
        }
