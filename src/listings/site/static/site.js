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
document.addEventListener("formdata", (event) => {
  if (event.target.method !== "get") return;
  for (const [name, value] of [...event.formData]) {
    if (value === "") event.formData.delete(name);
  }
});

// A search that fails is asked for once more as a page, which tells why.
for (const failed of ["htmx:responseError", "htmx:sendError"]) {
  document.addEventListener(failed, (event) => location.assign(event.detail.pathInfo.finalRequestPath));
}

function markFaults() {
  const faults = [...document.querySelectorAll(".search .fault")];
  for (const fault of faults) {
    const field = document.querySelector(`[aria-describedby="${fault.id}"]`);
    if (fault.textContent) field.setAttribute("aria-invalid", "true");
    else field.removeAttribute("aria-invalid");
  }
  return faults.map((fault) => fault.textContent).filter(Boolean).join(" ");
}

// Who can't see the results change hears of it.
document.addEventListener("htmx:afterSwap", (event) => {
  if (event.target.id !== "results") return;
  const count = event.target.querySelectorAll(".card").length;
  const heading = event.target.querySelector("h2");
  const found = count === 1 ? ": 1 listing on this page" : `: ${count} listings on this page`;
  document.getElementById("status").textContent = markFaults() || heading.textContent + (count ? found : "");
});
