// Checks the form as one types: it is sent as by the button "Check", and of the answer's page the parts
// marked `data-checked` take the place of their own.
const form = document.getElementById("submit");
const status = document.getElementById("checking");
const PAUSE = 400;
let timer = 0;
let running = null;

function marked(name) {
  return document.querySelector(`[aria-describedby="flaw-${CSS.escape(name)}"]`);
}

function take(page) {
  for (const fresh of page.querySelectorAll("[data-checked][id]")) {
    const old = document.getElementById(fresh.id);
    if (!old) continue;
    // What was opened to be read stays open.
    for (const one of old.querySelectorAll("details[open][id]")) {
      const same = fresh.querySelector(`#${CSS.escape(one.id)}`);
      if (same) same.open = true;
    }
    if (old.isEqualNode(fresh)) continue;
    // What is being typed in must stay; its flaw has a place of its own.
    if (old.contains(document.activeElement) && fresh.id.endsWith("-settings")) continue;
    old.replaceWith(fresh);
  }
  for (const flaw of document.querySelectorAll(".flaw[id^=flaw-]")) {
    const field = marked(flaw.id.slice("flaw-".length));
    const wrong = flaw.textContent !== "" && field && (field.value !== "" || field.dataset.touched);
    if (flaw.textContent && !wrong) flaw.textContent = "";
    field?.toggleAttribute("aria-invalid", false);
    if (wrong) field.setAttribute("aria-invalid", "true");
  }
}

async function check() {
  running?.abort();
  running = new AbortController();
  const body = new URLSearchParams(new FormData(form));
  body.set("action", "check");
  status.textContent = "checking";
  try {
    const answer = await fetch(form.getAttribute("action"), { method: "POST", body, signal: running.signal, redirect: "manual" });
    if (answer.ok) {
      take(new DOMParser().parseFromString(await answer.text(), "text/html"));
      status.textContent = "";
    } else status.textContent = answer.type === "opaqueredirect" ? "Your session has ended." : "not checked";
  } catch (error) {
    if (error.name !== "AbortError") status.textContent = "The service does not answer.";
  }
}

form.addEventListener("input", (event) => {
  event.target.dataset.touched = "yes";
  clearTimeout(timer);
  timer = setTimeout(check, PAUSE);
});
form.addEventListener("submit", (event) => {
  if (event.submitter?.value === "check") {
    event.preventDefault();
    check();
  }
});
if (form.elements.model.value) check();
