"""Metrics of each process. docs/observability.md lists all metrics."""
