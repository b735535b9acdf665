// Uploads the file of a form, and shows the progress. Without this script, the browser submits the
// form.
"use strict";

for (const form of document.querySelectorAll("form[data-upload]")) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send(form);
  });
  // A browser that returns to this page may restore it as it was left, with the progress of an upload
  // that has ended.
  addEventListener("pageshow", ({ persisted }) => {
    if (!persisted) return;
    form.querySelector(".upload").hidden = true;
    form.querySelector("button").disabled = false;
  });
  takeDroppedFile(form);
}

function takeDroppedFile(form) {
  for (const hint of form.querySelectorAll(".scripted")) hint.hidden = false;
  document.addEventListener("dragover", (event) => {
    event.preventDefault();
    form.classList.add("over");
  });
  document.addEventListener("dragleave", () => form.classList.remove("over"));
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    form.classList.remove("over");
    if (event.dataTransfer.files.length) {
      form.querySelector("input[type=file]").files = event.dataTransfer.files;
    }
  });
}

function send(form) {
  const told = form.querySelector(".upload");
  const bar = told.querySelector("progress");
  const words = told.querySelector("output");
  const button = form.querySelector("button");
  const chosen = form.querySelector("input[type=file]");
  const request = new XMLHttpRequest();
  const begun = performance.now();

  told.hidden = false;
  button.disabled = true;
  bar.hidden = false;
  words.textContent = "";
  hideErrors(form);
  request.upload.addEventListener("progress", ({ loaded, total }) => {
    bar.max = total || 1;
    bar.value = loaded;
    const seconds = (performance.now() - begun) / 1000;
    const left = seconds > 2 ? `, ${inWords(((total - loaded) * seconds) / loaded)} left` : "";
    words.textContent = `${megabytes(loaded)} of ${megabytes(total)} MB${left}`;
  });
  request.addEventListener("load", () => {
    if (request.status < 400 && request.responseURL && request.responseURL !== form.action) {
      // Follow the server's redirect to the page of the import or to the login page.
      window.location.assign(request.responseURL);
      return;
    }
    const page = new DOMParser().parseFromString(request.responseText, "text/html");
    const errors = [...page.querySelectorAll(".field > .wrong")];
    const reason = page.querySelector("main .wrong, main h1");
    stop(errors.length || !reason ? "" : reason.textContent.trim());
    showErrors(form, errors);
  });
  request.addEventListener("error", () =>
    stop("The connection was lost. Nothing was changed. Please upload the file again."),
  );
  request.open("POST", form.action);
  request.send(new FormData(form));

  function stop(text) {
    bar.hidden = true;
    words.textContent = text;
    told.hidden = !text;
    button.disabled = false;
    // Focus the file input, because a disabled button loses the focus.
    chosen.setAttribute("aria-describedby", `file-hint ${words.id}`);
    chosen.focus();
  }
}

// Show each error of the response next to its field, and focus the first of these fields.
function showErrors(form, errors) {
  const controls = [];
  for (const error of errors) {
    const name = error.id.replace(/-wrong$/, "");
    const control = form.querySelector(`[name="${CSS.escape(name)}"]`);
    if (!control) continue;
    control.setAttribute("aria-invalid", "true");
    control.setAttribute("aria-describedby", `${error.id} ${name}-hint`);
    control.closest(".field").append(document.importNode(error, true));
    control.closest("details")?.setAttribute("open", "");
    controls.push(control);
  }
  controls[0]?.focus();
}

function hideErrors(form) {
  for (const error of form.querySelectorAll(".field > .wrong")) error.remove();
  for (const control of form.querySelectorAll("[aria-invalid]")) {
    control.removeAttribute("aria-invalid");
  }
}

function megabytes(bytes) {
  return (bytes / 1e6).toFixed(1);
}

function inWords(seconds) {
  return seconds < 60 ? `about ${Math.ceil(seconds)} s` : `about ${Math.round(seconds / 60)} min`;
}
