"""Tests that the generated API clients group all operations by resource."""

from dataclasses import replace

import pytest

from clients.generator.operations import read_operations
from clients.generator.resources import DEPRECATED_OPERATIONS, group_operations
from tests.support.http.openapi import openapi_document


def test_every_operation_has_one_resource_method_or_is_deprecated() -> None:
    operations = read_operations(openapi_document())
    grouped_ids = [method.operation.id for method in group_operations(operations)]
    assert sorted([*grouped_ids, *DEPRECATED_OPERATIONS]) == sorted(
        operation.id for operation in operations
    )


def test_generator_refuses_two_operations_with_one_resource_method() -> None:
    operations = read_operations(openapi_document())
    create_list = next(each for each in operations if each.id == "create_list")
    operations.append(replace(create_list, id="create_lists"))
    with pytest.raises(ValueError, match=r"share a method: lists\.create$"):
        group_operations(operations)
