from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from integrations.mail.port import Mail

_TEMPLATES = Environment(
    loader=PackageLoader("services.people"),
    autoescape=select_autoescape(["html"]),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def render(
    template: str, *, to: str, key: str, headers: dict[str, str] | None = None, **values: str
) -> Mail:
    """The mail of ``templates/<template>.txt``, whose first line is the subject, and ``.html``."""
    subject, _, text = _render(f"{template}.txt", values).partition("\n")
    return Mail(
        to=to,
        subject=subject.strip(),
        text=text.strip() + "\n",
        html=_render(f"{template}.html", values),
        headers=headers or {},
        key=key,
    )


def _render(name: str, values: dict[str, str]) -> str:
    return _TEMPLATES.get_template(name).render(values)
