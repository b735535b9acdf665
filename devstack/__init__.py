"""The development stack behind `make run`: embedded services, the sandbox and their supervisor."""
