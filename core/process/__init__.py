"""Controls how Python and the operating system run this process."""
