// Requests a passkey from the browser, and submits the browser's response in the surrounding form.
"use strict";
(() => {
  const bytes = (text) =>
    Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), (each) => each.charCodeAt(0));
  const text = (buffer) =>
    btoa(String.fromCharCode(...new Uint8Array(buffer)))
      .replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
  const known = (list) => (list || []).map((each) => ({ ...each, id: bytes(each.id) }));
  const PARTS = ["clientDataJSON", "attestationObject", "authenticatorData", "signature", "userHandle"];

  async function ask(ceremony, json) {
    const options = JSON.parse(json);
    options.challenge = bytes(options.challenge);
    if (ceremony === "create") {
      options.user.id = bytes(options.user.id);
      options.excludeCredentials = known(options.excludeCredentials);
    } else {
      options.allowCredentials = known(options.allowCredentials);
    }
    const made = await navigator.credentials[ceremony]({ publicKey: options });
    const response = {};
    for (const part of PARTS) if (made.response[part]) response[part] = text(made.response[part]);
    return JSON.stringify({ id: made.id, rawId: text(made.rawId), type: made.type, response });
  }

  if (!window.PublicKeyCredential) return;
  for (const each of document.querySelectorAll("[data-without-passkey]")) each.hidden = true;
  for (const form of document.querySelectorAll("form[data-passkey]")) {
    const button = form.querySelector("button[data-ceremony]");
    const problem = form.querySelector("[data-problem]");
    form.hidden = false;
    for (const each of form.querySelectorAll("[data-offer]")) each.hidden = false;
    button.addEventListener("click", async () => {
      if (!form.reportValidity()) return;
      problem.hidden = true;
      button.disabled = true;
      try {
        form.elements.passkey.value = await ask(button.dataset.ceremony, button.dataset.options);
        form.submit();
      } catch {
        problem.textContent = "Your browser sent no passkey. Try again, or use another method.";
        problem.hidden = false;
        button.disabled = false;
        button.focus();
      }
    });
    form.addEventListener("submit", (event) => {
      // If the form has no submit button, the person pressed Enter in its only field.
      if (form.querySelector("button:not([type=button])")) return;
      event.preventDefault();
      button.click();
    });
  }
})();
