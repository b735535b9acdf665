(function (form) {
  var query = new URLSearchParams(location.search), link = document.createElement("a");
  link.href = document.referrer;
  form.querySelectorAll("input[type=hidden]").forEach(function (input) {
    if (input.name.indexOf("utm_") === 0) input.value = query.get(input.name) || "";
    if (input.name === "referrer") input.value = document.referrer ? link.hostname : "";
    if (input.name === "landing") input.value = location.pathname;
  });
})(document.currentScript.closest("form"));
