"""The pytest plugin that selects the tests of `make test`, `make check` and `make test-full`.

tests/runner/README.md describes the plugin.
"""

import gc
import sys

import pytest

from tests.runner.tiers import TIERS, is_selected
from tests.runner.zygote import Zygote
from tests.support.sizes import SIZE

pytest_plugins = ["tests.runner.failed_tests", "tests.runner.order", "tests.runner.stack_logs"]

# The pytest fixtures that start Postgres and other services, Pressroom's programs, or a browser.
_STACK_FIXTURES = {"services", "stack", "browser"}

# While pytest collects tests, it creates no garbage, so the garbage collector would waste time.
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
    """Keep only the tests of the tier that the option `--tier` names.

    Tests whose fixtures start programs get the mark `stack`, so that `make unit` excludes them. A
    test that starts programs without a fixture has the mark `stack` in its source.
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
    """Replace a parameter of type bytes by the parameter's name in the id of a test.

    A value of type bytes may contain the present time, but the id of a test must be the same in all
    processes that run tests.
    """
    return argname if isinstance(val, bytes) else None
