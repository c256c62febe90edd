// The pages /login and /first-admin: log in, and look after one's own account.
//
// A session has two halves. The cookie is the browser's, and goes to every port of this host name; the other half is told once,
// at the login, and kept in localStorage, which other ports cannot read. Nothing else is kept: no password, no code.

import { clear, onSubmit, onSwap, open } from "./account-forms.js";
import { CSRF, Refusal, SessionOver, call } from "./api.js";
import { copyTextOf, find, land, made, meta, shown, tell } from "./page.js";
import { beginProviderLogin, finishProviderLogin } from "./provider-login.js";

const AUTH = "/api/v1/auth";
const BACK = /^\/docs(#[\w\/.%-]*)?$/;
const METHODS = {
  PASSWORD: "password",
  TOTP: "password and second factor",
  RECOVERY_CODE: "password and recovery code",
  FIRST_ADMIN: "the code of the first administrator",
};
const BROWSERS = { "Edg/": "Edge", "OPR/": "Opera", "Firefox/": "Firefox", "Chrome/": "Chrome", "Safari/": "Safari" };
const SYSTEMS = { Android: "Android", iPhone: "iPhone", iPad: "iPad", Windows: "Windows", "Mac OS": "macOS", Linux: "Linux" };

// The API

/** A call of somebody who is logged in: when the session is over, the login is shown. */
async function callAs(method, path, body) {
  try {
    return await call(method, path, body);
  } catch (error) {
    if (error.code !== "UNAUTHENTICATED") throw error;
    showLogin(error);
    throw new SessionOver();
  }
}

function began(login) {
  localStorage.setItem(CSRF, login.csrf);
}

// Texts

function putTime(element, time) {
  element.dateTime = time;
  element.textContent = new Date(time).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
}

function browserName(agent) {
  const named = (table) => Object.keys(table).find((mark) => agent.includes(mark));
  const [browser, system] = [BROWSERS[named(BROWSERS)], SYSTEMS[named(SYSTEMS)]];
  return browser && system ? `${browser} on ${system}` : agent.slice(0, 60) || "unknown program";
}

// Views

function show(id, title) {
  for (const section of document.querySelectorAll("main > section")) section.hidden = section.id !== id;
  document.title = `${title} · Corral`;
}

function note(error) {
  if (error) tell(find("#notice"), error);
  else find("#notice").replaceChildren();
}

function showLogin(notice) {
  localStorage.removeItem(CSRF);
  for (const form of document.forms) clear(form);
  for (const part of document.querySelectorAll("#login fieldset")) open(part, false);
  forget();
  note(notice);
  show("login", "Log in");
  find("#login-name").focus();
}

async function showAccount(notice) {
  const me = await callAs("GET", `${AUTH}/me`);
  const back = new URLSearchParams(location.search).get("back") ?? "";
  if (!notice && BACK.test(back)) {
    location.replace(back); // to the page that has sent its reader here to log in
    return;
  }
  const account = find("#account");
  const entering = account.hidden;
  const session = me.session;
  const local = session.authenticated_by !== "OIDC";
  note(notice);
  find(".who", account).textContent = shown(me.display_name || me.user);
  find(".user", account).textContent = shown(me.user);
  find(".by", account).textContent = METHODS[session.authenticated_by] ?? (meta("corral-provider") || "a provider");
  putTime(find(".until", account), session.expires_at);
  for (const input of account.querySelectorAll("[name=username]")) input.value = me.user;
  find("#own-password").hidden = find("#factor").hidden = !local;
  find("#factor-set-up").hidden = me.has_totp;
  find("#factor-remove").hidden = !me.has_totp;
  showFactorState(me.has_totp);
  await showSessions();
  show("account", "Your account");
  if (entering || !document.activeElement.checkVisibility()) land(find("#account-title"));
}

async function showSessions() {
  const { items } = await callAs("GET", `${AUTH}/sessions`);
  find("#sessions").replaceChildren(...items.map(sessionRow));
}

function sessionRow(session) {
  const row = find("#session").content.cloneNode(true);
  const [agent, button] = [find(".agent", row), find("button", row)];
  agent.textContent = shown(browserName(session.agent));
  agent.title = shown(session.agent);
  if (!session.current) find(".current", row).remove();
  find(".address", row).textContent = shown(session.address);
  putTime(find(".begun", row), session.created_at);
  putTime(find(".used", row), session.last_used_at);
  button.setAttribute("aria-label", `End the session of ${agent.textContent}, ${find(".begun", row).textContent}`);
  button.addEventListener("click", () => press(button, find("#account .error"), () => endSession(session)));
  return row;
}

/** Do what a button outside of forms is for; a refusal is shown in `place`. */
async function press(button, place, act) {
  button.disabled = true;
  place.replaceChildren();
  try {
    await act();
  } catch (error) {
    if (!(error instanceof Refusal) && !(error instanceof SessionOver)) throw error;
    if (error instanceof Refusal) tell(place, error);
  } finally {
    button.disabled = false;
  }
}

async function endSession(session) {
  if (session.current) return logOut();
  await callAs("DELETE", `${AUTH}/sessions/${encodeURIComponent(session.id)}`);
  await showSessions();
  land(find("#sessions-title"));
}

async function logOut() {
  await callAs("POST", `${AUTH}/logout`);
  showLogin();
}

// The login of a command line

let waiting = "";

function showWaiting(login) {
  const form = find("#device-decide");
  waiting = login.user_code;
  find(".agent", form).textContent = shown(browserName(login.agent));
  find(".address", form).textContent = shown(login.address);
  putTime(find("time", form), login.started_at);
  find("#device-find").hidden = true;
  form.hidden = false;
  land(find("p", form)); // not on the button: who presses Enter once more has not read it
}

async function decide(approve) {
  await callAs("POST", `${AUTH}/device/decide`, { user_code: waiting, approve });
  forget();
  find("#device details").open = true;
  find("#device [role=status]").textContent = approve ? "The command line acts as you now." : "It was refused.";
}

// The second factor

let setup = "";

function showFactorState(isOn) {
  const state = find("#factor .state");
  state.textContent = isOn ? "On: logins with your password also need a code." : "Off.";
  state.classList.toggle("on", isOn);
}

function showFactorSetUp(begun) {
  setup = begun.setup;
  find("#factor-confirm .secret").textContent = begun.secret;
  find("#factor-confirm .uri").textContent = begun.uri;
  find("#factor-begin").hidden = true;
  find("#factor-confirm").hidden = false;
  find("#confirm-code").focus();
}

function showCodes(codes) {
  find("#recovery-codes .codes").replaceChildren(...codes.map((code) => made("li", code)));
  find("#factor-set-up").hidden = true;
  find("#recovery-codes").hidden = false;
  showFactorState(true);
  land(find("#recovery-codes h3"));
}

function copyCodes() {
  const copied = copyTextOf(find("#recovery-codes .codes"));
  find("#recovery-codes [role=status]").textContent = copied ? "Copied." : "They are selected: press Ctrl+C.";
}

/** Nothing of a second factor or of a waiting login stays in the page. */
function forget() {
  setup = waiting = "";
  for (const place of document.querySelectorAll("#factor-confirm code, .codes, #account [role=status]")) place.replaceChildren();
  find("#factor-begin").hidden = find("#device-find").hidden = false;
  find("#factor-confirm").hidden = find("#recovery-codes").hidden = find("#device-decide").hidden = true;
  for (const details of document.querySelectorAll("#account details")) details.open = false;
}

// Wiring

function wireLogin() {
  const form = find("#login form");
  onSubmit(form, async (given) => {
    began(await call("POST", `${AUTH}/login`, given));
    await showAccount();
  });
  onSwap(form);
  for (const input of [form.elements.name, form.elements.password]) {
    input.addEventListener("input", () => form.querySelectorAll("fieldset").forEach((part) => open(part, false)));
  }
  const provider = find(".provider");
  provider.hidden = !meta("corral-provider");
  find("bdi", provider).textContent = shown(meta("corral-provider"));
  const button = find("button", provider);
  button.addEventListener("click", () => press(button, find(".error", provider), beginProviderLogin));
}

function wireFirstAdmin(code) {
  onSubmit(find("#first-admin form"), async (given) => {
    began(await call("POST", `${AUTH}/login`, { ...given, first_admin_code: code }));
    history.replaceState(null, "", "/login");
    await showAccount();
  });
}

function wireAccount() {
  const out = find("#log-out");
  out.addEventListener("click", () => press(out, find("#account .error"), logOut));
  onSubmit(find("#device-find"), async (given) => showWaiting(await callAs("POST", `${AUTH}/device/find`, given)));
  onSubmit(find("#device-decide"), () => decide(true));
  const refusal = find("#device-decide .bad");
  refusal.addEventListener("click", () => press(refusal, find("#device-decide .error"), () => decide(false)));
  onSubmit(find("#own-password form"), async (given) => {
    began(await callAs("POST", `${AUTH}/password`, given));
    find("#own-password details").open = false;
    await showAccount();
  });
  onSubmit(find("#factor-begin"), async (given) => showFactorSetUp(await callAs("POST", `${AUTH}/totp`, given)));
  onSubmit(find("#factor-confirm"), async (given) => {
    const { codes } = await callAs("POST", `${AUTH}/totp/confirm`, { ...given, setup });
    showCodes(codes);
  });
  find("#recovery-codes .copy").addEventListener("click", copyCodes);
  const kept = find("#recovery-codes .kept");
  kept.addEventListener("click", () => press(kept, find("#account .error"), () => (forget(), showAccount())));
  const removal = find("#factor-remove form");
  onSwap(removal);
  onSubmit(removal, async (given) => {
    await callAs("POST", `${AUTH}/totp/remove`, given);
    forget();
    await showAccount();
  });
}

/** The code of an address is used once, and is neither for the history nor for whoever looks at the screen. */
function takeFragment() {
  const fragment = location.hash.slice(1);
  if (fragment) history.replaceState(null, "", location.pathname + location.search);
  return fragment;
}

async function showWhatIs(notice) {
  const csrf = localStorage.getItem(CSRF);
  if (!csrf) {
    showLogin(notice);
    return;
  }
  try {
    await showAccount(notice);
  } catch (error) {
    if (error instanceof SessionOver) return;
    if (!(error instanceof Refusal)) throw error;
    showLogin(error);
    localStorage.setItem(CSRF, csrf); // the session is not known to be over
  }
}

async function start() {
  const fragment = takeFragment();
  addEventListener("hashchange", () => location.reload()); // an address with a code, opened where the page is already
  if (meta("corral-refusal")) {
    tell(find("#refused .error"), { message: meta("corral-refusal"), hint: meta("corral-refusal-hint") });
    show("refused", "Log in");
    return;
  }
  wireLogin();
  wireAccount();
  addEventListener("storage", (event) => {
    if (event.key === CSRF && location.pathname === "/login") showWhatIs(); // another tab has logged in or out
  });
  if (location.pathname === "/first-admin") {
    wireFirstAdmin(fragment);
    show(fragment ? "first-admin" : "no-code", "First administrator");
    if (fragment) find("#first-password").focus();
    return;
  }
  let failed;
  try {
    if (fragment) began(await finishProviderLogin(fragment));
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    failed = error;
  }
  await showWhatIs(failed);
}

await start();
