"""What each process counts. docs/observability.md has the table of all metrics."""
