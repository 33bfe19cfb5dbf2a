// Puts a button beside each text that one may want to copy.
"use strict";

function offer(root) {
  for (const text of root.querySelectorAll("[data-copy]")) {
    if (text.dataset.offered) continue;
    text.dataset.offered = "yes";
    const button = document.createElement("button");
    button.type = "button";
    button.className = "quiet copy";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(text.textContent);
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
    text.before(button);
  }
}

offer(document);
document.addEventListener("live:replaced", (event) => offer(event.detail.element));
