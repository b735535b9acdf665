"""Every figure is a ratio to a baseline that runs beside it, turn by turn, in the same run."""
