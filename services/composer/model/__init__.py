"""The model writer: what a language model writes about a post, kept to the rules of an output."""

from services.composer.model.model_writer import metadata, tweets

__all__ = ["metadata", "tweets"]
