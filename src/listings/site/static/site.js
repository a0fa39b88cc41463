// Niceties. Every page is complete without them.
"use strict";

// A picture that can't be loaded leaves its place to what is behind it.
function hideMissing(event) {
  if (event.target instanceof HTMLImageElement && event.target.closest("[data-pictures]")) {
    event.target.classList.add("missing");
  }
}
document.addEventListener("error", hideMissing, true);
for (const image of document.querySelectorAll("[data-pictures] img")) {
  if (image.complete && image.naturalWidth === 0) image.classList.add("missing");
}

// An address without what was left empty is one that people can read and send to each other.
document.addEventListener("submit", (event) => {
  if (event.target.method !== "get") return;
  const empty = [...event.target.elements].filter((field) => field.name && !field.value && !field.disabled);
  for (const field of empty) field.disabled = true;
  setTimeout(() => { for (const field of empty) field.disabled = false; });
});
document.addEventListener("htmx:configRequest", (event) => {
  if (event.detail.verb !== "get") return;
  for (const [name, value] of [...event.detail.formData.entries()]) {
    if (value === "") event.detail.formData.delete(name);
  }
});

// Who can't see the results change hears of it.
document.addEventListener("htmx:afterSwap", () => {
  const status = document.getElementById("status");
  const results = document.getElementById("results");
  if (!status || !results) return;
  const count = results.querySelectorAll(".card").length;
  const heading = results.querySelector("h2, .notice");
  status.textContent = `${heading ? heading.textContent.trim() : ""}: ${count} listings on this page`;
});
