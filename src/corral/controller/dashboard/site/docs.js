// The page /docs: the description of the API, to look through. It is read with the session of whoever looks at it, or once with a token.

import { CSRF, Refusal, callForText } from "./api.js";
import { Contents, wireFilter } from "./docs-contents.js";
import { ApiDocument } from "./docs-document.js";
import { operationView } from "./docs-operation.js";
import { eventView, eventsView, nothingView, overview, schemaView } from "./docs-views.js";
import { find, land, meta, tell } from "./page.js";

const DOCUMENT = "/api/v1/openapi.json";
const TITLE = "Corral API";

let shownDocument = null;
let contents = null;

// States of the page

function show(id) {
  for (const part of document.querySelectorAll("main > section, #view")) part.hidden = part.id !== id;
  for (const part of [find("#contents"), find("#menu")]) part.hidden = id !== "view";
}

/** No session: say so, with a way to the login and back to this very place. */
function showEntry(refusal) {
  shownDocument = contents = null;
  find("#view").replaceChildren();
  find("#list").replaceChildren();
  const entry = find("#entry");
  const unsafe = meta("corral-refusal");
  if (unsafe) tell(find(".error", entry), { message: unsafe, hint: meta("corral-refusal-hint") });
  else if (refusal) tell(find(".error", entry), refusal);
  else find(".error", entry).replaceChildren();
  find("#to-login").hidden = find("#by-token").hidden = Boolean(unsafe);
  pointToLogin();
  document.title = TITLE;
  show("entry");
}

function pointToLogin() {
  find("#to-login a").setAttribute("href", `/login?back=${encodeURIComponent(`/docs${location.hash}`)}`);
}

function showFailure(refusal) {
  tell(find("#failure .error"), refusal);
  show("failure");
}

function showDocument(text) {
  shownDocument = new ApiDocument(text);
  contents = new Contents(shownDocument);
  find("#filter").value = "";
  find("#version").textContent = shownDocument.raw.info?.version ?? "";
  show("view");
  showPlace();
}

async function load() {
  if (!localStorage.getItem(CSRF)) {
    showEntry();
    return;
  }
  show("loading");
  try {
    showDocument(await callForText("GET", DOCUMENT));
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    if (error.code === "UNAUTHENTICATED") showEntry(error);
    else showFailure(error);
  }
}

// Places

function viewOf(kind, name) {
  if (!kind) return overview(shownDocument);
  if (kind === "operations" && shownDocument.operations.has(name)) return operationView(shownDocument, shownDocument.operations.get(name));
  if (kind === "schemas" && shownDocument.schemas.has(name)) return schemaView(shownDocument, name);
  if (kind === "events" && !name) return eventsView(shownDocument);
  if (kind === "events" && shownDocument.events.has(name)) return eventView(shownDocument, shownDocument.events.get(name));
  return nothingView();
}

/** `#/KIND/NAME`; what cannot be decoded is a name that nothing has. */
function placeInAddress() {
  const [, kind = "", name = ""] = location.hash.split("/");
  try {
    return [kind, decodeURIComponent(name)];
  } catch {
    return [kind, name];
  }
}

function showPlace() {
  const view = find("#view");
  view.replaceChildren(...viewOf(...placeInAddress()).flat().filter(Boolean));
  const heading = find("h1", view).textContent;
  document.title = heading === TITLE ? TITLE : `${heading} · ${TITLE}`;
  contents.mark(location.hash);
}

function onPlace() {
  pointToLogin();
  if (!shownDocument) return;
  openMenu(false);
  showPlace();
  scrollTo(0, 0);
  land(find("#view h1"));
}

// Wiring

function openMenu(isOpen) {
  find("#menu").setAttribute("aria-expanded", String(isOpen));
  document.body.classList.toggle("menu-open", isOpen);
}

function wireKeys() {
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape" && find("#menu").ariaExpanded === "true") {
      openMenu(false);
      find("#menu").focus();
    }
    if (event.key !== "/" || !shownDocument || event.target.matches("input")) return;
    event.preventDefault();
    openMenu(true);
    find("#filter").focus();
    find("#filter").select();
  });
}

function wireToken() {
  const form = find("#by-token form");
  const [field, button, error] = [find("input", form), find("button", form), find(".error", form)];
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const token = field.value.trim();
    field.value = "";
    error.replaceChildren();
    button.disabled = true;
    try {
      showDocument(await callForText("GET", DOCUMENT, null, token));
      land(find("#view h1"));
    } catch (refusal) {
      if (!(refusal instanceof Refusal)) throw refusal;
      tell(error, refusal);
      field.focus();
    } finally {
      button.disabled = false;
    }
  });
}

function start() {
  find("#skip").addEventListener("click", (event) => {
    event.preventDefault();
    land(find("main > :not([hidden]) h1"));
  });
  find("#menu").addEventListener("click", () => openMenu(find("#menu").getAttribute("aria-expanded") === "false"));
  find("#list").addEventListener("click", (event) => {
    if (event.target.closest("a")?.getAttribute("href") !== location.hash) return;
    openMenu(false); // the place does not change
    land(find("#view h1"));
  });
  find("#failure button").addEventListener("click", load);
  wireKeys();
  wireToken();
  wireFilter({ filter: (text) => contents?.filter(text) });
  addEventListener("hashchange", onPlace);
  addEventListener("storage", (event) => {
    if (event.key === CSRF) load(); // another tab has logged in or out
  });
  return load();
}

await start();
