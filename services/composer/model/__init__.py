"""The model writer: a language model's text about a post, checked against the rules of outputs."""
