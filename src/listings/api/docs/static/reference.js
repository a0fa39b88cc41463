// Makes the reference interactive. Without it the page is complete, but for sending requests.
"use strict";

const key = document.getElementById("key");

function element(name, text) {
  const made = document.createElement(name);
  made.textContent = text;
  return made;
}

/* The server knows the host by which it was asked, but not whether a proxy in front of it speaks TLS. */
function useOwnAddress() {
  const told = document.documentElement.dataset.base;
  const own = window.location.origin;
  if (told === own || !own.startsWith("http")) return;
  for (const code of document.querySelectorAll(".sample code, .overview code")) {
    code.textContent = code.textContent.replaceAll(told, own);
  }
}

function requestOf(form) {
  let path = form.dataset.path;
  const query = new URLSearchParams();
  const headers = new Headers();
  for (const field of form.querySelectorAll("[data-in]")) {
    const value = field.value.trim();
    if (value === "") continue;
    if (field.dataset.in === "path") path = path.replace(`{${field.name}}`, encodeURIComponent(value));
    else if (field.dataset.in === "query") query.append(field.name, value);
    else headers.set(field.name, value);
  }
  if (key.value.trim() !== "") headers.set("X-API-Key", key.value.trim());
  const body = form.elements.namedItem("body");
  if (body) headers.set("Content-Type", "application/json");
  const sent = { method: form.dataset.method, headers, cache: "no-store", credentials: "omit" };
  if (body) sent.body = body.value;
  return [query.size ? `${path}?${query}` : path, sent];
}

function readable(text, type) {
  if (!type.startsWith("application/json")) return text;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

async function send(form) {
  const output = form.querySelector("output");
  const button = form.querySelector("button");
  button.disabled = true;
  try {
    const [address, sent] = requestOf(form);
    const answer = await fetch(address, sent);
    const text = await answer.text();
    const lines = Array.from(answer.headers, ([name, value]) => `${name}: ${value}`);
    output.replaceChildren(
      element("p", `${sent.method} ${address} was answered ${answer.status} ${answer.statusText}`),
      element("pre", lines.join("\n")),
      element("pre", readable(text, answer.headers.get("Content-Type") || "")),
    );
  } catch (fault) {
    output.replaceChildren(element("p", `The request could not be sent: ${fault.message}`));
  } finally {
    button.disabled = false;
  }
}

function offerCopy(samples) {
  const button = element("button", "Copy");
  button.type = "button";
  button.className = "copy";
  button.addEventListener("click", async () => {
    const seen = [...samples.querySelectorAll(".sample")].find((sample) => sample.offsetParent !== null);
    await navigator.clipboard.writeText(seen.textContent);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  samples.append(button);
}

function chooseLanguage(language) {
  for (const input of document.querySelectorAll(`.samples input[value="${CSS.escape(language)}"]`)) input.checked = true;
}

useOwnAddress();
for (const hidden of document.querySelectorAll(".key, .try")) hidden.hidden = false;
for (const samples of document.querySelectorAll(".samples")) {
  if (navigator.clipboard) offerCopy(samples);
  samples.addEventListener("change", (event) => chooseLanguage(event.target.value));
}
for (const form of document.querySelectorAll("form")) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (form.dataset.path) send(form);
  });
}
if (window.matchMedia("(max-width: 48rem)").matches) document.querySelector("nav details").open = false;
