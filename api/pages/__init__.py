"""Pages for people who come from a mail or a login: plain HTML in one frame.

Only what passkeys need has a script: a browser offers them to scripts alone."""
