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

// Keys and clicks with a modifier are the browser's: they open tabs, for example.
function hasModifier(event) {
  return event.altKey || event.ctrlKey || event.metaKey || event.shiftKey;
}

// Walk through a gallery with the arrow keys. Only the picture in view takes part in the tab order.
for (const gallery of document.querySelectorAll("ul.gallery")) {
  const seen = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      for (const link of target.querySelectorAll("a")) link.tabIndex = isIntersecting ? 0 : -1;
      markThumbnail(target.id, isIntersecting);
    }
  }, { root: gallery, threshold: 0.6 });
  for (const item of gallery.children) seen.observe(item);
  gallery.addEventListener("keydown", (event) => {
    if (hasModifier(event)) return; // Alt and an arrow go back in the history
    const step = { ArrowLeft: ".previous", ArrowRight: ".next" }[event.key];
    const turn = step && event.target.closest("li")?.querySelector(step);
    if (!turn) return;
    event.preventDefault();
    showPicture(turn, true);
  });
}
function markThumbnail(id, isShown) {
  const link = document.querySelector(`.thumbnails [href="#${id}"]`);
  if (!link) return;
  const list = link.closest("ul");
  if (isShown) {
    link.setAttribute("aria-current", "true");
    list.scrollLeft = link.parentElement.offsetLeft - list.offsetLeft - list.clientWidth / 2 + link.clientWidth / 2;
  } else link.removeAttribute("aria-current");
}
function showPicture(link, takesFocus) {
  const item = document.querySelector(link.hash);
  item.parentElement.scrollTo({ left: item.offsetLeft });
  if (takesFocus) item.querySelector(`.${link.classList[1]}`)?.focus({ preventScroll: true });
}
document.addEventListener("click", (event) => {
  const link = event.target.closest(".turn, .thumbnails a");
  if (!link || hasModifier(event)) return;
  event.preventDefault(); // the page itself must not scroll
  showPicture(link, link.matches(".turn"));
});

// Enlarge a picture on the page itself.
const viewer = document.querySelector("dialog.viewer");
document.addEventListener("click", (event) => {
  const link = viewer && event.target.closest("a.enlarge");
  if (link && hasModifier(event)) return;
  if (link) {
    event.preventDefault();
    viewer.querySelector("img")?.remove();
    const image = link.querySelector("img").cloneNode();
    image.loading = "eager";
    image.classList.remove("missing"); // it is loaded again
    viewer.append(image);
    viewer.showModal();
  } else if (viewer?.contains(event.target)) viewer.close();
});

// Copy or share the link of a listing. Without permission to copy, show it selected.
for (const share of document.querySelectorAll(".share")) {
  const link = document.querySelector("link[rel=canonical]").href;
  share.classList.add("ready");
  const copy = share.querySelector("[data-copy-link]");
  copy.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(link);
      copy.textContent = "Link copied";
      share.querySelector("[role=status]").textContent = "Link copied";
    } catch {
      const field = Object.assign(document.createElement("input"), { value: link, readOnly: true, ariaLabel: "Link to copy" });
      copy.replaceWith(field);
      field.focus(); // not every browser does this when it selects
      field.select();
    }
  });
  const send = share.querySelector("[data-share-link]");
  send.hidden = !navigator.share;
  send.addEventListener("click", () => navigator.share({ title: document.title, url: link }).catch(() => {}));
}

// Omit empty fields, and the default sort order, from the URL of a search, so that people can read and share it.
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

// If a request was redirected, usually to the sign-in page, load that page instead of showing it as a part of this one.
document.addEventListener("htmx:beforeSwap", (event) => {
  const { xhr, pathInfo } = event.detail;
  if (new URL(xhr.responseURL).pathname === new URL(pathInfo.requestPath, location).pathname) return;
  event.detail.shouldSwap = false;
  location.assign(xhr.responseURL);
});

// Keep what was typed since the request, while its results were loading.
const typed = {};
document.addEventListener("htmx:beforeSwap", (event) => {
  const field = document.activeElement;
  const sent = event.detail.requestConfig.formData.get(field.name) ?? "";
  typed.id = field.matches("#results input") && field.value !== sent ? field.id : "";
  typed.value = field.value;
});
document.addEventListener("htmx:afterSwap", () => {
  const field = document.getElementById(typed.id);
  if (field) field.value = typed.value;
});

// Leave the filters open while they are used.
document.addEventListener("htmx:beforeSwap", (event) => {
  if (!document.querySelector(".refine[open]")) return;
  event.detail.serverResponse = event.detail.serverResponse.replace('<details class="refine">', '<details class="refine" open>');
});

// Show the results of a filter, which may be far away from it.
document.addEventListener("htmx:afterSettle", (event) => {
  if (!event.detail.requestConfig.elt.closest(".facets")) return;
  const heading = document.querySelector(".found h1");
  const { top } = heading.getBoundingClientRect();
  if (top < 0 || top > innerHeight / 2) heading.scrollIntoView();
});

// Focus the results if the link that loaded them is gone or far below.
document.addEventListener("htmx:afterSettle", () => {
  if (!document.activeElement.matches("body, .more a")) return;
  document.querySelector(".found h1")?.focus({ preventScroll: true });
});

// Announce new results and errors to screen readers.
document.addEventListener("htmx:afterSwap", () => {
  const results = document.getElementById("results");
  if (!results) return;
  const parts = [...results.querySelectorAll(".field-error"), ...results.querySelectorAll("h1, .total")];
  document.getElementById("status").textContent = parts.map((part) => part.textContent).filter(Boolean).join(" ");
});
