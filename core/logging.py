import logging
import sys
from typing import Any

from core.process.absent_modules import without
from core.settings.store_settings import LogSettings
from core.telemetry import spans

# Rich takes as long to import as all else of structlog, for tracebacks that are not printed here.
with without("rich"):
    import structlog


def configure_logging(settings: LogSettings) -> None:
    """Write records of structlog and the standard library to stderr, as JSON or pretty lines."""
    pretty = settings.log_format == "pretty" or (
        settings.log_format == "auto" and sys.stderr.isatty()
    )
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _add_span,
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        # Drops records below the level before any work is done for them: most are below it.
        wrapper_class=structlog.make_filtering_bound_logger(settings.log_level),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    renderers: list[Any] = (
        # Plain tracebacks: pretty ones show local variables, which may be secrets.
        [structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)]
        if pretty
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderers],
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler], force=True)
    _settle_libraries()


def _settle_libraries() -> None:
    # These servers bring their own handlers; with ours alone every line has one format.
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "celery", "tornado"):
        logger = logging.getLogger(name)
        logger.handlers = []
        logger.propagate = True
    # They write whole URLs: with tokens of the object storage, or those of webhooks, which may be
    # all that a receiver asks for.
    quiet = max(logging.WARNING, logging.getLogger().level)
    for name in ("urllib3", "httpx2"):
        logging.getLogger(name).setLevel(quiet)
    # The API writes its own access log, with the request id.
    logging.getLogger("uvicorn.access").disabled = True


def _add_span(_logger: Any, _method: str, record: Any) -> Any:
    """Traces and records are found from each other by this id."""
    return {**record, **spans.ids()}


def get_logger(name: str) -> structlog.typing.FilteringBoundLogger:
    logger: structlog.typing.FilteringBoundLogger = structlog.get_logger(name)
    return logger
