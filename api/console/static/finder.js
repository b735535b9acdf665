// Opens a dialog that searches pages, lists and members. The keys ⌘K and Ctrl-K open the dialog on
// every page of the console. Without this script, the link "Find" opens a page with the same search.
(() => {
  "use strict";
  const links = document.querySelectorAll("a[data-finder]");
  if (!links.length || typeof HTMLDialogElement !== "function") return;

  const made = (tag, attributes) => Object.assign(document.createElement(tag), attributes);
  const dialog = made("dialog", { className: "finder-dialog" });
  dialog.setAttribute("aria-label", "Find pages, lists and members");
  const label = made("label", { htmlFor: "finder-input", textContent: "Page, list title, or part of a name or address" });
  const input = made("input", { id: "finder-input", type: "search", autocomplete: "off", maxLength: 200 });
  const found = made("div", { className: "finder-found" });
  found.setAttribute("aria-live", "polite");
  const row = made("div", { className: "finder-row" });
  const close = made("button", { type: "button", className: "second", textContent: "Close" });
  close.addEventListener("click", () => dialog.close());
  row.append(input, close);
  const keys = made("p", { className: "meta finder-keys", textContent: "↑ and ↓ select a result, Enter opens it." });
  dialog.append(label, row, keys, found);
  document.body.append(dialog);

  let timer = 0;
  let asked = 0;

  const look = async () => {
    const number = ++asked;
    const url = new URL(links[0].href);
    url.searchParams.set("q", input.value);
    try {
      const reply = await fetch(url, { credentials: "same-origin" });
      const page = new DOMParser().parseFromString(await reply.text(), "text/html");
      if (number !== asked) return;
      const there = page.getElementById("found");
      // The session has ended. The page redirects to the login, and returns after the login.
      if (!there && reply.redirected) location.assign(url);
      if (there) found.replaceChildren(...there.childNodes);
    } catch {
      if (number === asked) location.assign(url);
    }
  };

  const open = () => {
    if (dialog.open) return;
    dialog.showModal();
    input.select();
  };

  const move = (step) => {
    const places = [input, ...found.querySelectorAll("a")];
    const here = places.indexOf(document.activeElement);
    places[(here + step + places.length) % places.length].focus();
  };

  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(look, 150);
  });
  dialog.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      move(event.key === "ArrowDown" ? 1 : -1);
    } else if (event.key === "Enter" && event.target === input) {
      event.preventDefault();
      const first = found.querySelector(".links a");
      if (first) first.click();
    }
  });
  // A click next to the dialog closes the dialog, like the key Escape.
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });
  const key = /Mac|iP(hone|ad)/.test(navigator.platform) ? "⌘K" : "Ctrl K";
  for (const link of links) {
    link.dataset.finder = key;
    link.addEventListener("click", (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      open();
    });
  }
  document.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && !event.altKey && event.key.toLowerCase() === "k") {
      event.preventDefault();
      open();
    }
  });
})();
