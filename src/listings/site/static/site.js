// Optional improvements. Every page works without them.
"use strict";

// Keys and clicks with a modifier are the browser's: they open tabs, for example.
function hasModifier(event) {
  return event.altKey || event.ctrlKey || event.metaKey || event.shiftKey;
}

// The gallery of a listing. A dialog takes it over to enlarge its pictures, so both turn in the same ways.
const gallery = document.querySelector("ul.gallery");
const viewer = document.querySelector("dialog.viewer");
const findThumbnail = (item) => document.querySelector(`.thumbnails [href="#${item.id}"]`);
let inView = gallery?.firstElementChild; // the picture in view

// Only the picture in view takes part in the tab order. In the dialog, its link would enlarge nothing.
function show(item, isShown) {
  for (const link of item.querySelectorAll("a")) {
    link.tabIndex = isShown && !(viewer.open && link.matches(".enlarge")) ? 0 : -1;
  }
  const thumbnail = findThumbnail(item);
  if (isShown) {
    inView = item;
    thumbnail?.setAttribute("aria-current", "true");
    const list = thumbnail?.closest("ul");
    list?.scrollTo({ left: thumbnail.parentElement.offsetLeft - list.offsetLeft - (list.clientWidth - thumbnail.clientWidth) / 2 });
  } else thumbnail?.removeAttribute("aria-current");
}
function scrollGallery(item, behavior = "auto") {
  inView = item;
  gallery.scrollTo({ left: item.offsetLeft, behavior });
}
function turn(link) {
  const hadFocus = document.activeElement.matches(".gallery a");
  scrollGallery(document.querySelector(link.hash));
  if (hadFocus) inView.querySelector(`.${link.classList[1]}`).focus({ preventScroll: true });
  viewer.querySelector("[role=status]").textContent = inView.querySelector("img").alt;
}
if (gallery) {
  const { parentElement: place } = gallery;
  const seen = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) show(target, isIntersecting);
  }, { root: gallery, threshold: 0.6 });
  for (const item of gallery.children) seen.observe(item);
  const move = (change) => {
    const item = inView;
    change();
    scrollGallery(item, "instant");
    show(item, true);
  };
  const enlarge = () => move(() => {
    place.style.minHeight = `${place.offsetHeight}px`; // the page does not move
    viewer.append(gallery);
    for (const image of gallery.querySelectorAll("[srcset]")) image.sizes = "100vw";
    viewer.showModal();
  });
  viewer.addEventListener("close", () => {
    move(() => place.prepend(gallery));
    place.style.minHeight = "";
    inView.querySelector("a").focus({ preventScroll: true });
  });
  document.addEventListener("keydown", (event) => {
    if (hasModifier(event) || !event.target.closest(".gallery, .viewer")) return; // Alt and an arrow go back in the history
    const side = { ArrowLeft: ".previous", ArrowRight: ".next" }[event.key];
    const link = side && inView.querySelector(side);
    if (!link) return;
    event.preventDefault();
    turn(link);
  });
  document.addEventListener("click", (event) => {
    const link = event.target.closest(".gallery a, .thumbnails a");
    if (!link || hasModifier(event)) return;
    event.preventDefault(); // the page itself must not scroll
    if (link.matches(".turn")) turn(link);
    else if (link.matches(".thumbnails a")) scrollGallery(document.querySelector(link.hash));
    else if (viewer.open) viewer.close();
    else enlarge();
  });
}

// A picture that failed to load leaves the gallery. If it is the only one, a drawing replaces it.
function removePicture(image) {
  const link = image.closest(".thumbnails a");
  const item = link ? document.querySelector(link.hash) : image.closest("ul.gallery li");
  if (!item || gallery.childElementCount === 1) return;
  if (item === inView) scrollGallery(item.nextElementSibling ?? item.previousElementSibling, "instant");
  findThumbnail(item).parentElement.remove();
  item.remove();
  scrollGallery(inView, "instant");
  const items = [...gallery.children], { length } = items;
  if (length === 1) for (const one of document.querySelectorAll(".turn, .counter, .thumbnails")) one.remove();
  items.forEach((one, index) => {
    const picture = one.querySelector("img"), number = index + 1;
    picture.alt = picture.alt.replace(/, picture \d+ of \d+$/, length > 1 ? `, picture ${number} of ${length}` : "");
    if (length === 1) return;
    one.querySelector(".counter").textContent = `${number} / ${length}`;
    one.querySelector(".previous").hash = items.at(index - 1).id;
    one.querySelector(".next").hash = items[number % length].id;
    findThumbnail(one).ariaLabel = `Show picture ${number}`;
  });
}
function hideMissing(image) {
  image.classList.add("missing"); // transparent, so that the drawing behind it is visible
  removePicture(image);
}
document.addEventListener("error", ({ target }) => {
  if (target instanceof HTMLImageElement && target.closest("[data-pictures]")) hideMissing(target);
}, true);
for (const image of document.querySelectorAll("[data-pictures] img")) {
  if (image.complete && image.naturalWidth === 0) hideMissing(image);
}

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

// Show on a listing's page whether it is saved, and save it without leaving the page.
for (const form of document.querySelectorAll(".save")) {
  const button = form.querySelector("button");
  const saved = document.cookie.split("; ").find((one) => one.startsWith(`${form.dataset.cookie}=`))?.split("=")[1].split(".");
  const draw = (isSaved) => {
    button.value = isSaved ? "remove" : "save";
    button.textContent = isSaved ? "Saved" : "Save";
    button.classList.toggle("is-saved", isSaved);
  };
  draw(saved?.includes(form.elements.id.value) ?? false);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const body = new URLSearchParams({ id: form.elements.id.value, action: button.value });
    const response = await fetch(form.getAttribute("action"), { method: "POST", body, redirect: "manual" }).catch(() => null);
    if (response?.type === "opaqueredirect") draw(button.value === "save");
    else button.textContent = "Try again";
  });
}

// Omit empty fields, and the default sort order, from the URL of a search, so that people can read and share it.
document.addEventListener("formdata", (event) => {
  if (event.target.method !== "get") return;
  for (const [name, value] of [...event.formData]) {
    if (value === "") event.formData.delete(name);
  }
  // A page without words shows the newest first and offers no best match: its order was not chosen for the new words.
  const offersBest = document.querySelector("#sort option[value=best]") !== null;
  const usual = event.formData.get("q") && offersBest ? "best" : "newest";
  if (usual === "newest" && event.formData.get("sort") === "best") event.formData.set("sort", usual);
  const isUsual = event.formData.get("sort") === usual;
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

document.addEventListener("click", (event) => {
  if (!event.target.closest?.(".show")) return;
  event.preventDefault(); // each change of a filter has already loaded its results
  event.target.closest(".refine").open = false;
});
document.addEventListener("keydown", (event) => {
  const open = event.key === "Escape" && document.querySelector(".refine[open]");
  if (!open) return;
  open.open = false;
  open.querySelector("summary").focus();
});

// Show the results of a filter, which may be far away from it.
document.addEventListener("htmx:afterSettle", (event) => {
  if (!event.detail.requestConfig.elt.closest(".facets") || document.querySelector(".refine[open]")) return;
  const heading = document.querySelector(".found .title");
  const { top } = heading.getBoundingClientRect();
  if (top < 0 || top > innerHeight / 2) heading.scrollIntoView();
});

// Focus the results if the link that loaded them is gone or far below.
document.addEventListener("htmx:afterSettle", () => {
  if (!document.activeElement.matches("body, .more a")) return;
  document.querySelector(".found .title")?.focus({ preventScroll: true });
});

// Announce new results and errors to screen readers.
document.addEventListener("htmx:afterSwap", () => {
  const results = document.getElementById("results");
  if (!results) return;
  const parts = [...results.querySelectorAll(".field-error"), ...results.querySelectorAll(".title, .total")];
  document.getElementById("status").textContent = parts.map((part) => part.textContent).filter(Boolean).join(" ");
});

// A page is printed with the contact of the seller.
addEventListener("beforeprint", () => {
  for (const contact of document.querySelectorAll("details.contact")) contact.open = true;
});

// A typed password can be read before it is sent.
for (const field of document.querySelectorAll("input[type=password]")) {
  const button = Object.assign(document.createElement("button"), { type: "button", className: "plain", textContent: "Show" });
  button.setAttribute("aria-label", "Show characters");
  button.addEventListener("click", () => {
    const isShown = field.type === "text";
    field.type = isShown ? "password" : "text";
    button.textContent = isShown ? "Show" : "Hide";
    button.setAttribute("aria-label", `${button.textContent} characters`);
    field.focus();
  });
  field.form?.addEventListener("submit", () => (field.type = "password")); // or browsers offer to remember the text
  const hadFocus = document.activeElement === field;
  const frame = Object.assign(document.createElement("span"), { className: "reveal" });
  field.replaceWith(frame);
  frame.append(field, button);
  if (hadFocus) field.focus();
}
