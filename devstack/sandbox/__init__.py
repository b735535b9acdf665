"""Replaces external services with local stand-ins that use the same protocols."""

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment


def render(template: str, **values: object) -> str:
    return _environment().get_template(template).render(values)


@cache
def _environment() -> "Environment":
    # Import Jinja only to render a page, because Jinja takes megabytes of memory and few sandboxes
    # render pages.
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("devstack.sandbox", "")
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
