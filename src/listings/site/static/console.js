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

for (const label of document.querySelectorAll("[data-select-all]")) {
  label.hidden = false;
  const all = label.querySelector("input");
  all.addEventListener("change", () => {
    for (const box of all.form.querySelectorAll("[name=id]")) box.checked = all.checked;
  });
}
