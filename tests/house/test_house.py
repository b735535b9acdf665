"""The order of the house: small folders, modules and functions, and one meaning a name."""

import pytest

from tests.house import exceptions, names
from tests.house.functions import MAX_FUNCTION_LINES, functions
from tests.house.source import ROOT, modules

pytestmark = pytest.mark.check

MAX_MODULES_OF_A_FOLDER = 12
MAX_MODULE_LINES = 300

TREE = modules(ROOT)


def test_no_folder_has_more_modules_than_a_reader_can_hold_in_mind() -> None:
    crowded = {
        folder: count
        for folder, count in names.modules_per_folder(TREE).items()
        if count > MAX_MODULES_OF_A_FOLDER and folder not in exceptions.FOLDERS_OF_ANY_SIZE
    }
    assert crowded == {}


def test_no_module_is_too_long() -> None:
    long = {
        str(module.path): module.physical_lines
        for module in TREE
        if module.physical_lines >= MAX_MODULE_LINES
    }
    assert long == {}


def test_no_function_is_too_long() -> None:
    long = {
        f"{function.path}:{function.name}"
        for function in functions(TREE)
        if function.length > MAX_FUNCTION_LINES
    }
    assert long == set()


def test_the_name_of_a_module_is_used_for_one_thing() -> None:
    assert names.ambiguous_module_names(TREE) == {}


def test_the_name_of_a_public_class_is_used_once() -> None:
    assert names.repeated_class_names(TREE) == {}


def test_a_bound_is_called_max_or_min() -> None:
    assert names.bounds_of_other_names(TREE) == []


def test_every_exception_is_needed() -> None:
    repeated = set(names.repeated_module_names(TREE))
    assert set(exceptions.ROLES) | set(exceptions.SAME_THING) <= repeated
    folders = names.modules_per_folder(TREE)
    assert set(exceptions.FOLDERS_BY_RESOURCE) <= set(folders)
    assert set(exceptions.FOLDERS_OF_ANY_SIZE) <= set(folders)
