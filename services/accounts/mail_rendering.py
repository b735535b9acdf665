"""Renders every mail that Pressroom sends, and registers the jobs that send mails.

The templates of all mails, including mails about lists, are in ``services/accounts/templates``.
"""

from collections.abc import Callable
from functools import cache

from jinja2 import Environment, PackageLoader

from core.languages import reader_languages
from core.languages.reader_languages import create_templates
from core.queues import Queue
from core.scopes import Scope
from integrations.mail.port import Mail, Mailer
from services.jobs.kinds import JobKind, register_kind
from services.jobs.lease import Lease
from storage.resources import Resources

# The accent colour of the public pages, for account mails and for lists without a colour.
_DEFAULT_COLOUR = "#9f2d16"


def render_mail(
    template: str,
    *,
    to: str,
    key: str,
    language: str | None = None,
    sender_name: str | None = None,
    headers: dict[str, str] | None = None,
    **values: object,
) -> Mail:
    """Render a mail from the templates ``<template>.txt`` and ``<template>.html``.

    The first line of the text template is the subject line. Mails to list owners and operators are
    always in English.
    """
    templates = _load_templates(reader_languages.available_language(language))

    def fill(name: str) -> str:
        return templates.get_template(name).render(values)

    subject, _, text = fill(f"{template}.txt").partition("\n")
    return Mail(
        to=to,
        subject=subject.strip(),
        text=text.strip() + "\n",
        html=fill(f"{template}.html"),
        sender_name=sender_name,
        headers=headers or {},
        key=key,
    )


@cache
def _load_templates(language: str) -> Environment:
    templates = create_templates(language, PackageLoader("services.accounts"))
    templates.globals["default_colour"] = _DEFAULT_COLOUR
    return templates


def register_mail_kind(name: str, send: Callable[[Resources, Lease, Mailer], None]) -> JobKind:
    return register_kind(
        JobKind(
            name=name,
            run=lambda resources, lease: send(resources, lease, resources.shared(_create_mailer)),
            queue=Queue.MAIL,
            scope=Scope.SUBSCRIPTION_FULL,
            permissions=None,
            retryable=True,
        )
    )


def _create_mailer(resources: Resources) -> Mailer:
    # The import is inside the function, because only workers need the mail providers.
    from integrations.mail import registry

    return registry.create_mailer(resources.settings)
