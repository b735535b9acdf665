"""Values that tests of sign-up forms and tests of sign-up pages share."""

# The title of a mailing list, with HTML markup that pages must escape.
TITLE = "The Morning <Letter>"
OWNER_ORIGIN = "https://www.owner.example"
# Maps each challenge provider to the form field in which its widget sends the token.
WIDGET_FIELDS = {
    "turnstile": "cf-turnstile-response",
    "hcaptcha": "h-captcha-response",
    "recaptcha": "g-recaptcha-response",
}
