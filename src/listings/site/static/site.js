// Optional improvements. Every page works without them.
"use strict";

// Make an image that failed to load transparent, so that the drawing behind it is visible.
function hideMissing(event) {
  if (event.target instanceof HTMLImageElement && event.target.closest("[data-pictures]")) {
    event.target.classList.add("missing");
  }
}
document.addEventListener("error", hideMissing, true);
for (const image of document.querySelectorAll("[data-pictures] img")) {
  if (image.complete && image.naturalWidth === 0) image.classList.add("missing");
}

// Omit empty fields, and the usual order, from the URL of a search, so that people can read and share it.
document.addEventListener("formdata", (event) => {
  if (event.target.method !== "get") return;
  for (const [name, value] of [...event.formData]) {
    if (value === "") event.formData.delete(name);
  }
  const isUsual = event.formData.get("sort") === "newest";
  if (isUsual && [...event.formData].length > 1) event.formData.delete("sort");
});

// If a search fails, load its page instead, which shows the reason.
for (const failure of ["htmx:responseError", "htmx:sendError"]) {
  document.addEventListener(failure, (event) => location.assign(event.detail.pathInfo.finalRequestPath));
}

// Leave the filters open while they are used.
document.addEventListener("htmx:beforeSwap", (event) => {
  if (!document.querySelector(".refine[open]")) return;
  event.detail.serverResponse = event.detail.serverResponse.replace('<details class="refine">', '<details class="refine" open>');
});

// Announce new results and errors to screen readers.
document.addEventListener("htmx:afterSwap", () => {
  const results = document.getElementById("results");
  const parts = [...results.querySelectorAll(".field-error"), ...results.querySelectorAll("h1, .total")];
  document.getElementById("status").textContent = parts.map((part) => part.textContent).filter(Boolean).join(" ");
});
