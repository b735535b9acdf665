"""Pages for people who come from a mail or a login: plain HTML in one frame, without scripts."""
