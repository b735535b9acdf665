"""Settings of the stack without workers that the contract tests share."""

KEY_HEADER = "X-Newsroom-Key"
CDN = "https://cdn.example.com"
CONTACTS = ("mailto:security@news.example", "https://news.example/report")
POLICY = "https://news.example/security"
