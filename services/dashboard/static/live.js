// Keeps a page as its server has it. Elements with `data-live` and an id are replaced when the page,
// fetched again, has them otherwise; children with ids (rows) one by one. Nothing here makes content.
const SOON = 2000;
const SELDOM = 15000;
const fromServer = new Map();
let tag = null;
let timer = 0;
let looking = false;
let again = false;
let over = false;

const shown = new Intl.DateTimeFormat(undefined, {
  year: "numeric", month: "short", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit",
});

function span(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  const two = (number) => String(number).padStart(2, "0");
  const minutes = Math.floor(whole / 60);
  const hours = Math.floor(minutes / 60);
  const days = Math.floor(hours / 24);
  if (days) return `${days} d ${two(hours % 24)} h`;
  if (hours) return `${hours} h ${two(minutes % 60)} min`;
  return minutes ? `${minutes} min ${two(whole % 60)} s` : `${whole} s`;
}

function ago(seconds) {
  if (seconds < 5) return "now";
  const steps = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const [length, unit] = steps.find(([one]) => seconds >= one);
  return `${Math.floor(seconds / length)} ${unit} ago`;
}

function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function tellTimes(root) {
  for (const element of root.querySelectorAll("time[datetime]")) {
    const at = new Date(element.dateTime);
    const passed = (Date.now() - at) / 1000;
    if ("since" in element.dataset) put(element, span(passed));
    else if ("until" in element.dataset) put(element, span(-passed));
    else if ("relative" in element.dataset) {
      element.title = shown.format(at);
      put(element, ago(passed));
    } else put(element, shown.format(at));
  }
}

function remember(element) {
  fromServer.set(element.id, element.outerHTML);
  for (const child of element.children) if (child.id) fromServer.set(child.id, child.outerHTML);
}

// What the reader ticked or opened stays so: the page says how jobs stand, not what one looks at.
function keepChoices(old, fresh) {
  for (const [kind, property] of [["input:checked", "checked"], ["details[open]", "open"]]) {
    for (const one of [old, ...old.querySelectorAll(`${kind}[id]`)]) {
      if (!one.matches(kind)) continue;
      const same = one === old ? fresh : fresh.querySelector(`#${CSS.escape(one.id)}`);
      if (same) same[property] = true;
    }
  }
}

function swap(old, fresh) {
  keepChoices(old, fresh);
  const read = old.scrollTop;
  const focused = old.contains(document.activeElement) ? document.activeElement.id : "";
  old.replaceWith(fresh);
  if (read) fresh.scrollTop = read;
  if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
}

function keyed(element) {
  return element.children.length > 0 && [...element.children].every((child) => child.id);
}

function mergeChildren(old, fresh) {
  const wanted = new Set([...fresh.children].map((child) => child.id));
  for (const child of [...old.children]) if (!wanted.has(child.id)) child.remove();
  let place = old.firstElementChild;
  for (const child of [...fresh.children]) {
    const known = document.getElementById(child.id);
    const same = known && fromServer.get(child.id) === child.outerHTML;
    fromServer.set(child.id, child.outerHTML);
    if (known && !same) {
      const next = known === place;
      swap(known, child);
      if (next) place = child;
    }
    const current = same ? known : child;
    if (current === place) place = place.nextElementSibling;
    else old.insertBefore(current, place);
  }
}

function merge(page) {
  document.title = page.title;
  for (const fresh of page.querySelectorAll("[data-live][id]")) {
    const old = document.getElementById(fresh.id);
    if (!old || fromServer.get(fresh.id) === fresh.outerHTML) continue;
    fromServer.set(fresh.id, fresh.outerHTML);
    let current = fresh;
    if (keyed(old) && keyed(fresh)) {
      mergeChildren(old, fresh);
      current = old;
    } else {
      for (const child of fresh.children) if (child.id) fromServer.set(child.id, child.outerHTML);
      swap(old, fresh);
    }
    tellTimes(current);
    document.dispatchEvent(new CustomEvent("live:replaced", { detail: { element: current } }));
  }
}

function say(text, link) {
  const notice = document.getElementById("notice");
  if (notice.dataset.text === text) return;
  notice.dataset.text = text;
  notice.replaceChildren(text);
  if (link) {
    const anchor = document.createElement("a");
    anchor.href = link;
    anchor.textContent = "Log in";
    notice.append(" ", anchor);
  }
}

async function look() {
  if (over) return;
  if (looking) {
    again = true;
    return;
  }
  looking = true;
  try {
    const headers = tag ? { "If-None-Match": tag } : {};
    const answer = await fetch(location.href, { headers, redirect: "manual", cache: "no-store" });
    if (answer.type === "opaqueredirect") {
      over = true;
      say("Your session has ended.", `/login?next=${encodeURIComponent(location.pathname + location.search)}`);
    } else if (answer.ok) {
      tag = answer.headers.get("ETag");
      merge(new DOMParser().parseFromString(await answer.text(), "text/html"));
      say("");
    } else if (answer.status === 304) say("");
    else say(answer.status === 404 ? "This is not there any more." : "The service does not answer; trying again.");
  } catch {
    say("The service does not answer; trying again.");
  }
  looking = false;
  plan(again ? 0 : undefined);
  again = false;
}

function plan(wait) {
  clearTimeout(timer);
  if (!over) timer = setTimeout(look, wait ?? (document.hidden ? SELDOM : SOON));
}

if (document.querySelector("[data-live]")) {
  document.querySelectorAll("[data-live][id]").forEach(remember);
  document.addEventListener("visibilitychange", () => plan(document.hidden ? undefined : 0));
  plan();
}
tellTimes(document);
setInterval(() => { if (!document.hidden) tellTimes(document); }, 1000);
