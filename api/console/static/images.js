// Uploads several images at once, which a person selects, drops or pastes, and shows the progress.
// The script also adds buttons that copy the text of a field or a heading, and counts the characters
// of tweets. Without this script, the form uploads one file at a time, and a person can select the texts.
"use strict";

const form = document.querySelector("form[data-images]");
if (form) {
  takeImages(form);
}
const copied = document.querySelectorAll("[data-copy]");
// Add the status element before it has a text, because some screen readers don't announce an element
// that is added together with its text.
const said = document.createElement("p");
if (copied.length) {
  said.className = "unseen";
  said.setAttribute("role", "status");
  document.querySelector("main").append(said);
}
for (const field of copied) {
  addButton(field);
}
for (const field of document.querySelectorAll("[data-weighed]")) {
  const count = document.querySelector(`#${field.id}-hint b`);
  field.addEventListener("input", () => {
    const weight = weigh(field.value);
    count.textContent = weight.toLocaleString("en");
    count.parentElement.classList.toggle("over", weight > 280);
  });
}

function takeImages(form) {
  const chosen = form.querySelector("input[type=file]");
  let waiting = Promise.resolve();
  let refused = 0;

  chosen.multiple = true;
  for (const hint of form.querySelectorAll(".scripted")) {
    hint.hidden = false;
  }
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    take(chosen.files);
  });
  document.addEventListener("paste", (event) => take(event.clipboardData.files));
  document.addEventListener("dragover", (event) => {
    event.preventDefault();
    form.classList.add("over");
  });
  document.addEventListener("dragleave", () => form.classList.remove("over"));
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    form.classList.remove("over");
    take(event.dataTransfer.files);
  });

  // Upload the files one after the other, because the form sends one file per request.
  function take(files) {
    form.closest("details").open ||= files.length > 0;
    for (const file of files) {
      const line = lineOf(file);
      waiting = waiting.then(() => send(form, file, line)).then((isThere) => {
        refused += isThere ? 0 : 1;
      });
    }
    const last = waiting;
    waiting.then(() => {
      if (files.length && last === waiting && !refused) {
        window.location.assign(form.dataset.images);
      }
      chosen.value = "";
    });
  }

  function lineOf(file) {
    const line = document.createElement("li");
    const name = document.createElement("bdi");
    const bar = document.createElement("progress");
    name.textContent = file.name;
    bar.max = 1;
    bar.value = 0;
    bar.setAttribute("aria-label", `Upload progress of ${file.name}`);
    line.append(name, " ", bar);
    form.querySelector(".sent").append(line);
    return line;
  }
}

function send(form, file, line) {
  const content = new FormData(form);
  content.delete("file");
  content.append("file", file);
  const bar = line.querySelector("progress");
  return new Promise((done) => {
    const request = new XMLHttpRequest();
    request.upload.addEventListener("progress", ({ loaded, total }) => {
      bar.max = total || 1;
      bar.value = loaded;
    });
    request.addEventListener("load", () => {
      const isThere = request.status < 400;
      end(isThere, isThere ? "was uploaded" : reasonIn(request.responseText));
    });
    request.addEventListener("error", () => {
      end(false, "The connection was lost. Upload the image again.");
    });
    request.open("POST", form.action);
    request.send(content);

    function end(isThere, text) {
      line.classList.toggle("wrong", !isThere);
      line.replaceChildren(line.querySelector("bdi"), isThere ? " " : ": ", text);
      done(isThere);
    }
  });
}

function reasonIn(text) {
  const page = new DOMParser().parseFromString(text, "text/html");
  const wrong = page.querySelector(".field .wrong") || page.querySelector("main .wrong, main h1");
  return wrong ? wrong.textContent.trim() : "The image was rejected.";
}

function addButton(field) {
  const name = field.dataset.copy || field.labels[0].textContent;
  const button = document.createElement("button");
  button.type = "button";
  button.className = "second";
  show("Copy");
  button.addEventListener("click", async () => {
    if (field.select) field.select();
    else getSelection().selectAllChildren(field);
    try {
      await navigator.clipboard.writeText(field.value ?? field.textContent.trim());
    } catch {
      document.execCommand("copy");
    }
    show("Copied");
    say(`Copied: ${name}`);
  });
  field.after(button);

  function show(word) {
    button.textContent = word;
    button.setAttribute("aria-label", `${word}: ${name}`);
  }
}

// Count the characters of a tweet like X (Twitter): a link counts as 23 characters, and an emoji or a
// wide character, such as a Chinese one, counts as two. The server follows the rules more exactly.
function weigh(text) {
  const words = text.normalize("NFC").replace(/https?:\/\/\S+/g, "-".repeat(23));
  let weight = 0;
  for (const { segment } of new Intl.Segmenter().segment(words)) {
    const isEmoji = /\p{Emoji_Presentation}|\ufe0f/u.test(segment);
    const characters = isEmoji ? [segment] : [...segment];
    for (const character of characters) {
      const code = character.codePointAt(0);
      const isNarrow = code <= 4351 || (code >= 8192 && code <= 8247 && ![8206, 8207].includes(code)
        && !(code >= 8224 && code <= 8241));
      weight += !isEmoji && isNarrow ? 1 : 2;
    }
  }
  return weight;
}

// Announce a text to people who use a screen reader.
function say(text) {
  // Change the text for a second copy, because screen readers don't announce the same text again.
  said.textContent = said.textContent === text ? `${text}.` : text;
}
