"""Stand-ins for external services, which use the same protocols on the loopback address."""

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment


def render(template: str, **values: object) -> str:
    return _environment().get_template(template).render(values)


@cache
def _environment() -> "Environment":
    # Import Jinja with the first page, because Jinja takes megabytes and most sandboxes show no
    # page.
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("devstack.sandbox", "")
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
