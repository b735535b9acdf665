"""The pytest plugin of `make test`, `make check` and `make test-full`; README.md describes it."""

import gc
import sys

import pytest

from tests.runner.tiers import TIERS, is_selected
from tests.runner.zygote import Zygote
from tests.support.sizes import SIZE

pytest_plugins = ["tests.runner.failed_tests", "tests.runner.order", "tests.runner.stack_logs"]

# The fixtures that start services, our programs or a browser.
_STACK_FIXTURES = {"services", "stack", "browser"}

# The objects that collection creates are no garbage, so looking for garbage among them is useless.
gc.disable()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--tier",
        choices=("full", *TIERS),
        help="run the tests of this tier; full: all parts of make test-full",
    )


def pytest_configure(config: pytest.Config) -> None:
    if SIZE == "few" and sys.platform == "linux":
        config.pluginmanager.register(Zygote(), "zygote")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Select the tests of the tier.

    Tests with a fixture that starts programs get the mark `stack`, so that `make unit` leaves them
    out. Tests that start programs without such a fixture are marked `stack` in their source.
    """
    for item in items:
        if isinstance(item, pytest.Function) and _STACK_FIXTURES & set(item.fixturenames):
            item.add_marker(pytest.mark.stack)
    if tier := config.getoption("tier"):
        selected = [item for item in items if is_selected(item, tier)]
        chosen = set(selected)
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = selected


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Return the name of the parameter as the id of a value of type bytes.

    Some of these values contain the present time. The id of a test must be the same in all
    processes that run tests.
    """
    return argname if isinstance(val, bytes) else None
