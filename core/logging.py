"""The loggers of structlog, which all modules use."""

from core.process.absent_modules import hide_module

# Rich is slow to import. structlog needs Rich only for tracebacks in a format that Pressroom
# doesn't print.
with hide_module("rich"):
    import structlog


def get_logger(name: str) -> structlog.typing.FilteringBoundLogger:
    logger: structlog.typing.FilteringBoundLogger = structlog.get_logger(name)
    return logger
