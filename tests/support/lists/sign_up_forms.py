"""Values that the tests of sign-up forms and of sign-up pages share."""

# The title contains markup that pages must escape.
TITLE = "The Morning <Letter>"
OWNER_ORIGIN = "https://www.owner.example"
# The form field in which the widget of each challenge provider sends its token.
WIDGET_FIELDS = {
    "turnstile": "cf-turnstile-response",
    "hcaptcha": "h-captcha-response",
    "recaptcha": "g-recaptcha-response",
}
