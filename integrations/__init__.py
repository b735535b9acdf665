"""Other people's services, each behind a port of ours."""
