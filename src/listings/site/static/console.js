// Optional improvements of the console. Every page works without them.
"use strict";

const current = document.querySelector(".sidebar [aria-current]");
if (current) current.closest("nav").scrollLeft = current.offsetLeft - 48;

for (const button of document.querySelectorAll("[data-copy]")) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    const field = document.getElementById(button.dataset.copy);
    field.select();
    try {
      await navigator.clipboard.writeText(field.value);
      button.textContent = "Copied";
      document.getElementById("copied").textContent = "Copied";
    } catch {
      document.getElementById("copied").textContent = "Selected. Copy it with your keyboard.";
    }
  });
}

// Suggest the categories of the selected type.
const type = document.getElementById("listing-type");
if (type) {
  const category = document.getElementById("listing-category");
  type.addEventListener("change", () => category.setAttribute("list", `categories-${type.value}`));
}

// Select all listings on the page, and say how many are selected.
for (const label of document.querySelectorAll("[data-select-all]")) {
  const all = label.querySelector("input");
  const form = all.form;
  const boxes = [...form.querySelectorAll("[name=id]")];
  const output = form.querySelector("[data-selected]");
  label.hidden = false;
  const count = (event) => {
    if (event?.target === all) for (const box of boxes) box.checked = all.checked;
    const selected = boxes.filter((box) => box.checked).length;
    all.checked = selected === boxes.length;
    const isAll = form.elements.all?.checked;
    output.textContent = isAll ? "All that match" : `${selected} selected`;
    for (const button of form.querySelectorAll(".bulk-buttons button")) button.disabled = !selected && !isAll;
  };
  form.addEventListener("change", count);
  count();
}

// Ignore a second submission within a second: the second half of a double click.
let last = { form: null, button: null, time: 0 };
document.addEventListener("submit", (event) => {
  const { target: form, submitter: button, timeStamp: time } = event;
  if (form === last.form && button === last.button && time - last.time < 1000) event.preventDefault();
  else last = { form, button, time };
});

// Warn before unsaved edits are lost.
for (const form of document.querySelectorAll("[data-warn-unsaved]")) {
  const state = () => JSON.stringify([...new FormData(form)]);
  const saved = form.dataset.warnUnsaved === "changed" ? "" : state(); // a rejected form was never saved
  let submitted = false;
  form.addEventListener("submit", (event) => { submitted = event.submitter?.formTarget !== "_blank"; });
  window.addEventListener("beforeunload", (event) => {
    if (!submitted && state() !== saved) event.preventDefault();
  });
}
