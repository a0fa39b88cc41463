// The pictures of a form: upload, order and previews. Without this script, the form sends the files itself.
"use strict";

const MAX_SIDE = 2600;
const AT_ONCE = 2;
const own = /^(?:https?:\/\/[^/]+)?(?:\/[^/]+)*\/media\/([0-9a-f]{32})\.jpg$/;

// Return a smaller copy, without the place where a photo was taken, or the file itself if it can't be decoded here.
async function shrink(file) {
  try {
    const bitmap = await createImageBitmap(file);
    const scale = Math.min(1, MAX_SIDE / Math.max(bitmap.width, bitmap.height));
    if (scale === 1 && /^image\/(png|webp)$/.test(file.type)) return file;
    const canvas = document.createElement("canvas");
    canvas.width = Math.round(bitmap.width * scale);
    canvas.height = Math.round(bitmap.height * scale);
    const pen = canvas.getContext("2d");
    pen.fillStyle = "#fff"; // JPEG has no transparency
    pen.fillRect(0, 0, canvas.width, canvas.height);
    pen.imageSmoothingQuality = "high";
    pen.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
    bitmap.close();
    return (await new Promise((resolve) => canvas.toBlob(resolve, "image/jpeg", .9))) ?? file;
  } catch {
    return file;
  }
}

// Send one picture, and return what the service answers: { url } or { error }.
function send(address, token, name, content, onProgress) {
  return new Promise((resolve) => {
    const body = new FormData(), request = new XMLHttpRequest();
    body.append("token", token);
    body.append("picture", content, name);
    request.open("POST", address);
    request.setRequestHeader("Accept", "application/json");
    request.responseType = "json";
    request.upload.addEventListener("progress", (event) => onProgress(event.loaded / event.total));
    request.addEventListener("loadend", () => {
      const isRedirected = request.responseURL && request.responseURL !== new URL(address, location).href;
      const error = isRedirected ? "You are signed out. Sign in in another tab, then try again" : "The connection failed. Try again";
      resolve(request.response ?? { error });
    });
    request.send(body);
  });
}

function make(tag, properties, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

for (const area of document.querySelectorAll("[data-pictures-form]")) {
  const { upload: address, prefix, hidden } = area.dataset;
  const form = area.querySelector("input[type=file]").form;
  const lines = area.querySelector("textarea"); // of the form of a listing; a form without it only uploads
  const list = area.querySelector(".picture-list"), status = area.querySelector("[role=status]");
  const waiting = [];
  let active = 0, submitter = null;

  const items = () => [...list.children];
  const isPending = (item) => item.matches(".waiting, .sending");
  const say = (text) => { status.textContent = text; };

  // The lines of the text are the pictures of the listing, in their order.
  function store() {
    if (!lines) return;
    lines.value = items().map((item) => item.dataset.url).filter(Boolean).join("\n");
    label();
  }
  function label() {
    items().forEach((item, index, all) => {
      const number = index + 1;
      item.classList.toggle("main", lines && index === 0);
      for (const [name, text, isOff] of [
        ["first", `Make picture ${number} the main picture`, index === 0],
        ["back", `Move picture ${number} back`, index === 0],
        ["on", `Move picture ${number} forward`, number === all.length],
        ["remove", `Remove picture ${number}`],
        ["again", `Upload picture ${number} again`],
      ]) {
        const button = item.querySelector(`[data-do=${name}]`);
        if (!button) continue;
        button.ariaLabel = button.title = text;
        if (isOff !== undefined) button.disabled = isOff;
      }
    });
    area.classList.toggle("filled", list.childElementCount > 0);
  }
  function button(action, text) {
    const element = make("button", { type: "button", className: "plain", textContent: text });
    element.dataset.do = action;
    return element;
  }
  function addItem(source, name) {
    const image = make("img", { alt: name, width: 176, height: 132, referrerPolicy: "no-referrer" });
    const actions = lines ? [["first", "★"], ["back", "←"], ["on", "→"]] : [];
    const tools = make("div", { className: "tools" }, ...[...actions, ["remove", "✕"]].map((one) => button(...one)));
    const item = make("li", { draggable: Boolean(lines) }, image, make("p", { className: "note" }), tools);
    if (source) image.src = source;
    list.append(item);
    return item;
  }
  const note = (item, text) => { item.querySelector(".note").textContent = text; };

  function showLines() {
    for (const item of items()) if (item.dataset.url) item.remove();
    const pending = items();
    for (const url of lines.value.split("\n").map((line) => line.trim()).filter(Boolean).slice(0, 50)) {
      const name = own.exec(url)?.[1], address = url.startsWith("/") ? prefix + url : url;
      const isShown = /^https?:\/\//i.test(address) || url.startsWith("/");
      const isHidden = name && hidden.split(" ").includes(name);
      const item = addItem(isHidden ? "" : name ? `${prefix}/media/${name}-400.webp` : isShown ? address : "", "");
      item.dataset.url = url;
      if (isHidden) note(item, "Hidden: we took down a listing that showed it");
      else if (!isShown) note(item, `Not an address: ${url}`);
      const image = item.querySelector("img");
      image.addEventListener("error", () => {
        if (name && image.src !== address && isShown && !url.startsWith("/")) image.src = address;
        else note(item, `Does not load: ${url}`);
      });
    }
    list.append(...pending);
    label();
  }

  function addFiles(files) {
    for (const file of files) {
      const item = addItem(URL.createObjectURL(file), file.name);
      item.file = file;
      queue(item);
    }
    label();
    next();
  }
  function queue(item) {
    item.className = "waiting";
    note(item, "Waiting");
    waiting.push(item);
  }
  async function next() {
    while (active < AT_ONCE && waiting.length) {
      active += 1;
      run(waiting.shift()).finally(() => {
        active -= 1;
        report();
        next();
      });
    }
  }
  async function run(item) {
    if (!item.isConnected) return; // removed meanwhile
    item.className = "sending";
    const bar = make("progress", { max: 1, value: 0, ariaLabel: item.file.name });
    item.querySelector(".note").replaceChildren(bar);
    const content = await shrink(item.file);
    const { url, error } = await send(address, form.elements.token.value, item.file.name, content, (part) => { bar.value = part; });
    item.className = error ? "failed" : "";
    note(item, error ? `${item.file.name}: ${error}` : lines ? "" : item.file.name);
    item.querySelector("[data-do=again]")?.remove();
    if (error) item.querySelector(".tools").prepend(button("again", "↻"));
    else if (items().some((one) => one.dataset.url === url)) item.remove();
    else item.dataset.url = url;
    label();
    if (item.isConnected) store();
  }
  function report() {
    const all = items().filter((item) => item.file), failed = all.filter((item) => item.matches(".failed")).length;
    const pending = all.filter(isPending).length, done = all.length - pending - failed;
    say(`${done} of ${all.length} pictures uploaded${failed ? `, ${failed} failed` : ""}.`);
    if (pending || !submitter) return;
    const pressed = submitter;
    submitter = null;
    if (!failed) form.requestSubmit(pressed);
  }

  function move(item, before) {
    list.insertBefore(item, before);
    store();
    say(`Picture ${items().indexOf(item) + 1} of ${list.childElementCount}.`);
  }
  list.addEventListener("click", (event) => {
    const pressed = event.target.closest("button"), item = pressed?.closest("li");
    if (!item) return;
    const action = pressed.dataset.do;
    if (action === "first") move(item, list.firstElementChild);
    else if (action === "back") move(item, item.previousElementSibling);
    else if (action === "on") move(item, item.nextElementSibling.nextElementSibling);
    else if (action === "again") {
      pressed.remove();
      queue(item);
      next();
    } else {
      const neighbour = item.nextElementSibling ?? item.previousElementSibling;
      item.remove();
      store();
      label();
      say("Picture removed.");
      (neighbour?.querySelector("[data-do=remove]") ?? area.querySelector("input[type=file]")).focus();
      return;
    }
    if (item.contains(pressed)) (pressed.disabled ? item.querySelector("button:enabled") : pressed).focus();
  });

  // Order by dragging.
  let dragged = null;
  list.addEventListener("dragstart", (event) => {
    dragged = event.target.closest("li");
    event.dataTransfer.effectAllowed = "move";
    dragged?.classList.add("dragged");
  });
  list.addEventListener("dragover", (event) => {
    const over = dragged && event.target.closest(".picture-list > li");
    if (!over || over === dragged) return;
    event.preventDefault();
    const box = over.getBoundingClientRect();
    list.insertBefore(dragged, event.clientX < box.left + box.width / 2 ? over : over.nextElementSibling);
  });
  list.addEventListener("dragend", () => {
    dragged?.classList.remove("dragged");
    dragged = null;
    store();
  });

  // Files that are dropped or chosen.
  const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
  area.addEventListener("dragover", (event) => {
    if (!hasFiles(event) && !dragged) return;
    event.preventDefault();
    area.classList.toggle("over", !dragged);
  });
  area.addEventListener("dragleave", () => area.classList.remove("over"));
  area.addEventListener("drop", (event) => {
    area.classList.remove("over");
    event.preventDefault();
    if (!dragged) addFiles(event.dataTransfer.files);
  });
  for (const input of area.querySelectorAll("input[type=file]")) {
    input.addEventListener("change", () => {
      addFiles([...input.files]);
      input.value = ""; // uploaded now, not with the form
    });
  }
  form.addEventListener("submit", (event) => {
    if (!items().some(isPending)) return;
    event.preventDefault();
    event.stopPropagation();
    submitter = event.submitter;
    say("The form is sent when all pictures are uploaded.");
  });
  lines?.addEventListener("input", showLines);
  if (lines) showLines();
  form.enctype = "application/x-www-form-urlencoded"; // it has no files
  area.classList.add("ready");
}
