"""The providers' widgets, for pages of ours.

Sources: developers.cloudflare.com/turnstile/get-started and /reference/content-security-policy,
docs.hcaptcha.com, developers.google.com/recaptcha/docs/display and /docs/faq.
"""

from integrations.challenges.port import ChallengeProviderName, ChallengeWidget

_CLOUDFLARE = "https://challenges.cloudflare.com"
_HCAPTCHA = "https://hcaptcha.com https://*.hcaptcha.com"
_GOOGLE = "https://www.google.com/recaptcha/"

WIDGETS = {
    ChallengeProviderName.TURNSTILE: ChallengeWidget(
        script=f"{_CLOUDFLARE}/turnstile/v0/api.js",
        css_class="cf-turnstile",
        field="cf-turnstile-response",
        policy={"script-src": _CLOUDFLARE, "frame-src": _CLOUDFLARE},
    ),
    ChallengeProviderName.HCAPTCHA: ChallengeWidget(
        script="https://js.hcaptcha.com/1/api.js",
        css_class="h-captcha",
        field="h-captcha-response",
        policy=dict.fromkeys(("script-src", "frame-src", "style-src", "connect-src"), _HCAPTCHA),
    ),
    # Of version 2: the widget of version 3 needs a script of ours.
    ChallengeProviderName.RECAPTCHA: ChallengeWidget(
        script=f"{_GOOGLE}api.js",
        css_class="g-recaptcha",
        field="g-recaptcha-response",
        policy={
            "script-src": f"{_GOOGLE} https://www.gstatic.com/recaptcha/",
            "frame-src": f"{_GOOGLE} https://recaptcha.google.com/recaptcha/",
        },
    ),
}
