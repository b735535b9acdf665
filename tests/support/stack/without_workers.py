"""Settings of the stack without workers, which the tests in tests/contract share."""

KEY_HEADER = "X-Newsroom-Key"
CDN = "https://cdn.example.com"
CONTACTS = ("mailto:security@news.example", "https://news.example/report")
POLICY = "https://news.example/security"
DOCS_URL = "https://docs.news.example/pressroom"
