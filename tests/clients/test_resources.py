"""Tests that the generated API clients group all operations by resource."""

import pytest

from clients.generator.operations import read_operations
from clients.generator.resources import DEPRECATED_OPERATIONS, RESOURCES, group_operations
from tests.support.http.openapi import openapi_document


def test_every_operation_has_one_resource_method_or_is_deprecated() -> None:
    operations = read_operations(openapi_document())
    grouped_ids = [method.operation.id for method in group_operations(operations)]
    assert sorted([*grouped_ids, *DEPRECATED_OPERATIONS]) == sorted(
        operation.id for operation in operations
    )


def test_generator_names_an_operation_without_a_resource_method(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(RESOURCES["lists"], "create")
    with pytest.raises(ValueError, match=r"resources\.py .*: create_list$"):
        group_operations(read_operations(openapi_document()))
