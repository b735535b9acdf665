"""Stand-ins for other people's services, which speak their protocols on the loopback address."""
