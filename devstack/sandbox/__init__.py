"""Stand-ins for other people's services, which speak their protocols on the loopback address."""

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment


@cache
def _environment() -> "Environment":
    # Imported with the first page: most sandboxes show none, and it takes megabytes.
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("devstack.sandbox", "")
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)


def render(template: str, **values: object) -> str:
    return _environment().get_template(template).render(values)
