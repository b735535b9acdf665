"""Metrics of each process. docs/observability.md has the table of all metrics."""
