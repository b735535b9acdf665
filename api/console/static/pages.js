// Makes pages easier to use. Every page also works without this script.
(() => {
  "use strict";

  // Browsers ignore autofocus if the URL has a fragment. Focus the first invalid field anyway.
  if (location.hash) {
    addEventListener("load", () => document.querySelector("[autofocus][aria-invalid]")?.focus());
  }

  // A button prints the page. Without this script, the browser's menu does the same.
  for (const button of document.querySelectorAll("[data-print]")) {
    button.parentElement.hidden = false;
    button.addEventListener("click", () => print());
  }

  // A box in the header of a table ticks the boxes of all rows.
  const showBoxes = () => {
    for (const box of document.querySelectorAll("[data-ticks][hidden]")) box.hidden = false;
  };
  // Show the number of ticked rows next to the buttons that act on them.
  const countTicks = () => {
    for (const number of document.querySelectorAll("[data-counts]")) {
      const form = number.closest("form");
      number.textContent = form.querySelectorAll(`[name="${number.dataset.counts}"]:checked`).length;
    }
  };
  const refresh = () => { showBoxes(); countTicks(); };
  refresh();
  document.addEventListener("htmx:afterSwap", refresh);
  // Count again when someone returns to the page, because the browser restores the ticks.
  addEventListener("pageshow", countTicks);
  document.addEventListener("change", ({ target }) => {
    if (target.dataset.ticks) {
      for (const box of target.form.querySelectorAll(`[name="${target.dataset.ticks}"]`)) {
        box.checked = target.checked;
      }
    }
    countTicks();
  });

  // A tap or the arrow keys select a column of a chart. Its numbers are shown below the chart.
  for (const chart of document.querySelectorAll("[data-chart]")) {
    const columns = [...chart.querySelectorAll(".tip")];
    const numbers = chart.closest("figure").querySelector("p[hidden]");
    let selected = columns.length;
    const describe = (index, text) => {
      numbers.textContent = text;
      chart.setAttribute("aria-valuenow", index);
      chart.setAttribute("aria-valuetext", text);
    };
    const select = (index) => {
      columns[selected]?.classList.remove("selected");
      selected = Math.max(0, Math.min(index, columns.length - 1));
      columns[selected].classList.add("selected");
      describe(selected, columns[selected].textContent);
    };
    numbers.hidden = false;
    chart.tabIndex = 0;
    chart.setAttribute("role", "slider");
    chart.setAttribute("aria-valuemin", 0);
    chart.setAttribute("aria-valuemax", columns.length - 1);
    describe(columns.length - 1, numbers.textContent);
    chart.addEventListener("click", ({ clientX }) => {
      const { left, width } = chart.getBoundingClientRect();
      select(Math.floor(((clientX - left) / width) * columns.length));
    });
    chart.addEventListener("keydown", (event) => {
      const steps = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, Home: -Infinity, End: Infinity };
      if (!(event.key in steps)) return;
      event.preventDefault();
      select(selected + steps[event.key]);
    });
  }

  // Each button below an input fills the input with an existing value.
  for (const choices of document.querySelectorAll("[data-fills]")) {
    const input = document.getElementById(choices.dataset.fills);
    choices.hidden = false;
    choices.addEventListener("click", ({ target }) => {
      if (target.type !== "button") return;
      input.value = target.textContent;
      input.focus();
    });
  }

  // The web address of a new list follows its title until someone types an address. The server
  // builds the address of a title without Latin letters.
  for (const slug of document.querySelectorAll("[data-slug-of]")) {
    const title = document.getElementById(slug.dataset.slugOf);
    let isTyped = slug.value !== "";
    slug.addEventListener("input", () => { isTyped = slug.value !== ""; });
    title.addEventListener("input", () => {
      if (isTyped) return;
      const letters = title.value.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();
      slug.value = letters.replace(/[^a-z0-9]+/g, "-").replace(/^-+/, "").slice(0, 80).replace(/-$/, "");
    });
  }

  // The preview of a sign-up page follows the form next to it.
  for (const form of document.querySelectorAll("form[data-preview]")) {
    const frame = document.getElementById(form.dataset.preview);
    // The frame is twice as large as the preview. Show the whole page, without an empty space below it.
    const fit = () => {
      const footer = frame.contentDocument.querySelector("footer");
      if (!footer) return;
      frame.parentElement.style.height = `${Math.ceil(footer.getBoundingClientRect().bottom / 2) + 16}px`;
    };
    // The frame may have loaded before or after this script runs.
    frame.addEventListener("load", fit);
    fit();
    form.addEventListener("input", () => requestAnimationFrame(fit));
    form.addEventListener("input", ({ target }) => {
      const page = frame.contentDocument;
      if (target.name === "colour") {
        page.documentElement.style.setProperty("--accent", target.value);
      } else if (target.name === "sign_up_text") {
        const text = page.querySelector(".words") || page.createElement("p");
        text.className = "words";
        text.textContent = target.value;
        text.hidden = target.value.trim() === "";
        page.querySelector("h1").after(text);
      } else if (target.name === "logo_hash_id") {
        const image = page.querySelector(".logo img") || page.createElement("img");
        const logo = page.querySelector(".logo") || page.createElement("p");
        logo.className = "logo";
        logo.hidden = target.value === "";
        image.src = target.selectedOptions[0].dataset.url;
        logo.append(image);
        page.querySelector("main").prepend(logo);
      }
    });
  }
})();
