from functools import cache

from jinja2 import Environment, PackageLoader

from core.languages import reader_languages
from core.languages.reader_templates import templates_in
from integrations.mail.port import Mail


@cache
def _templates(language: str) -> Environment:
    return templates_in(language, PackageLoader("services.people"))


def render(
    template: str,
    *,
    to: str,
    key: str,
    language: str | None = None,
    sender_name: str | None = None,
    headers: dict[str, str] | None = None,
    **values: str | None,
) -> Mail:
    """The mail of ``templates/<template>.txt``, whose first line is the subject, and ``.html``.

    ``language``: that of a reader, if it is known; owners and operators read English.
    """
    templates = _templates(reader_languages.known(language))

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
