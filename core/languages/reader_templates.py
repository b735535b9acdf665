"""Templates of pages and mails, with their marked texts in a reader's language."""

from jinja2 import BaseLoader, Environment, StrictUndefined, select_autoescape

from core.languages.reader_languages import translations


def templates_in(language: str, loader: BaseLoader) -> Environment:
    """HTML is escaped, plain text is not. A name that has no value is an error."""
    templates = Environment(
        loader=loader,
        autoescape=select_autoescape(["html"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.i18n"],
    )
    templates.policies["ext.i18n.trimmed"] = True
    templates.install_gettext_translations(translations(language), newstyle=True)  # type: ignore[attr-defined] # the extension adds it
    templates.globals["language"] = language
    return templates
