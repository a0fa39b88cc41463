// Niceties of the console. Every page is complete without them.
"use strict";

const here = document.querySelector(".side [aria-current]");
if (here) here.closest("nav").scrollLeft = here.offsetLeft - 48;

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
      document.getElementById("copied").textContent = "It is selected: copy it with your keyboard";
    }
  });
}

for (const all of document.querySelectorAll("[data-all]")) {
  all.hidden = false;
  const box = all.querySelector("input");
  box.addEventListener("change", () => {
    for (const one of box.form.querySelectorAll("[name=id]")) one.checked = box.checked;
  });
}
