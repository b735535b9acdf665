"""The loggers of structlog, which all modules use."""

from core.process.absent_modules import without

# Rich takes as long to import as the rest of structlog, only for tracebacks that we don't print.
with without("rich"):
    import structlog


def get_logger(name: str) -> structlog.typing.FilteringBoundLogger:
    logger: structlog.typing.FilteringBoundLogger = structlog.get_logger(name)
    return logger
