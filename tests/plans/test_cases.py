"""The benchmarks of growth and of pages, and the tests of plans, leave nothing out."""

from benchmarks.growth import EACH
from benchmarks.scale.page_cases import LEFT_OUT as PAGES_LEFT_OUT
from benchmarks.scale.page_cases import console_pages, page_cases
from benchmarks.scale.route_cases import LEFT_OUT, ROUTES, call_of
from benchmarks.scale.upkeep_cases import DUE
from tests.openapi import openapi_document
from workers.tasks.table import TASKS


def test_every_route_has_a_case_or_is_left_out_for_a_reason() -> None:
    paths = openapi_document()["paths"]
    documented = {
        f"{method.upper()} {path}" for path, methods in paths.items() for method in methods
    }
    assert documented == ROUTES.keys() | LEFT_OUT.keys()
    assert not ROUTES.keys() & LEFT_OUT.keys()
    assert all(call_of(name, case) for name, cases in ROUTES.items() for case in cases)


def test_every_kind_of_upkeep_has_a_case() -> None:
    assert {kind.name for kind in TASKS.upkeep} == DUE.keys()


def test_what_is_compared_by_each_of_what_there_is_has_a_case() -> None:
    routes = {f"{route} {case.name}" for route, cases in ROUTES.items() for case in cases}
    assert routes | DUE.keys() >= EACH.keys()


def test_every_page_of_the_console_has_a_case_or_is_left_out_for_a_reason() -> None:
    measured = {case.operation for case in page_cases()}
    assert measured | PAGES_LEFT_OUT.keys() == console_pages()
    assert len({case.title for case in page_cases()}) == len(page_cases())
