"""The model writer: a language model's text about a post, checked against the rules of outputs."""

from services.composer.model.model_writer import metadata, tweets

__all__ = ["metadata", "tweets"]
