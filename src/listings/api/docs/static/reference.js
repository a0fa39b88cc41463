// Adds forms that send requests, copy buttons and language switching. The rest of the page works without it.
"use strict";

const key = document.getElementById("key");

function element(name, text) {
  const node = document.createElement(name);
  node.textContent = text;
  return node;
}

/* The server may know only the Host header, but not whether a proxy in front of it uses TLS. */
function useOwnOrigin() {
  const rendered = document.documentElement.dataset.base;
  const own = window.location.origin + new URL(rendered).pathname.replace(/\/$/, "");
  if (rendered === own || !own.startsWith("http")) return;
  for (const code of document.querySelectorAll("pre code, .overview code")) {
    code.textContent = code.textContent.replaceAll(rendered, own);
  }
}

function buildRequest(form) {
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
  const options = { method: form.dataset.method, headers, cache: "no-store", credentials: "omit" };
  if (body) options.body = body.value;
  const file = form.elements.namedItem("file");
  if (file) options.body = file.files[0];
  return [query.toString() ? `${path}?${query}` : path, options];
}

function prettyPrint(text, type) {
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
    const [url, options] = buildRequest(form);
    const response = await fetch(url, options);
    const text = await response.text();
    const lines = Array.from(response.headers, ([name, value]) => `${name}: ${value}`);
    output.replaceChildren(
      element("p", `${options.method} ${url}: ${response.status} ${response.statusText}`),
      element("pre", lines.join("\n")),
      element("pre", prettyPrint(text, response.headers.get("Content-Type") || "")),
    );
  } catch (error) {
    output.replaceChildren(element("p", `Sending the request failed: ${error.message}`));
  } finally {
    button.disabled = false;
  }
}

function addCopyButton(samples) {
  const button = element("button", "Copy");
  button.type = "button";
  button.className = "copy";
  button.addEventListener("click", async () => {
    const visible = [...samples.querySelectorAll(".sample")].find((sample) => sample.offsetParent !== null);
    await navigator.clipboard.writeText(visible.textContent);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  samples.append(button);
}

function chooseLanguage(language) {
  for (const input of document.querySelectorAll(`.samples input[value="${CSS.escape(language)}"]`)) input.checked = true;
}

useOwnOrigin();
for (const hidden of document.querySelectorAll(".key, .try")) hidden.hidden = false;
for (const samples of document.querySelectorAll(".samples")) {
  if (navigator.clipboard) addCopyButton(samples);
  samples.addEventListener("change", (event) => chooseLanguage(event.target.value));
}
for (const form of document.querySelectorAll("form")) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (form.dataset.path) send(form);
  });
}
if (window.matchMedia("(min-width: 48rem)").matches) document.querySelector(".contents details").open = true;
