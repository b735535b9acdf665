// Opens a dialog that searches pages, lists and members. The keys ⌘K and Ctrl-K open the dialog on
// every page of the console. Without this script, the link "Find" opens a page with the same search.
// The page waits for this script, so that the keys work as soon as the page is visible.
(() => {
  "use strict";
  if (typeof HTMLDialogElement !== "function") return;

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

  let timer = 0;
  // The text whose results are shown, and whether to open the first result of the next search.
  let searched = "";
  let isEntered = false;

  const openFirst = () => found.querySelector(".links a")?.click();

  const look = async () => {
    const text = input.value;
    const url = new URL(document.querySelector("a[data-finder]").href);
    url.searchParams.set("q", text);
    let results = null;
    try {
      const reply = await fetch(url, { credentials: "same-origin" });
      results = new DOMParser().parseFromString(await reply.text(), "text/html").getElementById("found");
    } catch { /* The search page shows the error. */ }
    if (text !== input.value || !dialog.open) return;
    // The session may have ended. The page redirects to the login, and returns after the login.
    if (!results) return location.assign(url);
    found.replaceChildren(...results.childNodes);
    searched = text;
    if (isEntered) openFirst();
  };

  const open = () => {
    if (dialog.open) return;
    if (!dialog.isConnected) document.body.append(dialog);
    isEntered = false;
    dialog.showModal();
    input.select();
  };

  const move = (step) => {
    const places = [input, ...found.querySelectorAll("a")];
    const here = places.indexOf(document.activeElement);
    places[(here + step + places.length) % places.length].focus();
  };

  input.addEventListener("input", () => {
    isEntered = false;
    clearTimeout(timer);
    timer = setTimeout(look, 150);
  });
  dialog.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      move(event.key === "ArrowDown" ? 1 : -1);
    } else if (event.key === "Enter" && event.target === input) {
      event.preventDefault();
      // Never open a result of an earlier text.
      isEntered = searched !== input.value;
      if (isEntered) look();
      else openFirst();
    }
  });
  // A click next to the dialog closes the dialog, like the key Escape.
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });
  const key = /Mac|iP(hone|ad)/.test(navigator.platform) ? "⌘K" : "Ctrl K";
  addEventListener("DOMContentLoaded", () => {
    for (const link of document.querySelectorAll("a[data-finder]")) link.dataset.finder = key;
  });
  document.addEventListener("click", (event) => {
    if (!event.target.closest("a[data-finder]") || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    open();
  });
  document.addEventListener("keydown", (event) => {
    if (!document.querySelector("a[data-finder]")) return;
    if ((event.ctrlKey || event.metaKey) && !event.altKey && event.key.toLowerCase() === "k") {
      event.preventDefault();
      open();
    }
  });
})();
