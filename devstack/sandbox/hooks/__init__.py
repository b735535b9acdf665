"""A receiver of webhooks for developers: it shows what came, and misbehaves when it is told to."""
