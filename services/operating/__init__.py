"""What operators ask and do: for the command line, and for their pages of the console."""
