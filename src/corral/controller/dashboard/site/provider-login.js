// Logins with a provider of OpenID Connect, from this page to the provider's and back.

import { Refusal, call } from "./api.js";
import { meta } from "./page.js";

const PAGE_SECRET = "corral.page-secret";
const SEARCH = "corral.login-search";
const AUTH = "/api/v1/auth";

function base64url(bytes) {
  return btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

/** The secret stays in this tab, and proves when the browser comes back that it is this page that began. */
export async function beginProviderLogin() {
  const { origin } = new URL(meta("corral-provider-origin"));
  if (origin !== location.origin) {
    location.assign(`${origin}/login${location.search}`); // the provider sends people back there, where nothing of this page is known
    return;
  }
  const secret = base64url(crypto.getRandomValues(new Uint8Array(32)));
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(secret));
  sessionStorage.setItem(PAGE_SECRET, secret);
  if (location.search) sessionStorage.setItem(SEARCH, location.search);
  location.assign(`${AUTH}/oidc/start?challenge=${base64url(new Uint8Array(digest))}`);
}

/** The browser is back from the provider. Links of others can end in a fragment, too: without the secret it means nothing. */
export async function finishProviderLogin(fragment) {
  const [secret, search] = [taken(PAGE_SECRET), taken(SEARCH)];
  if (!secret) {
    throw new Refusal({ message: "this tab has begun no login that could be finished", hint: "log in here" });
  }
  if (search) history.replaceState(null, "", location.pathname + search);
  const told = new URLSearchParams(fragment);
  if (told.has("error")) {
    throw new Refusal({ message: told.get("message") || told.get("error"), hint: told.get("hint") ?? "" });
  }
  return call("POST", `${AUTH}/login`, { code: fragment, page_secret: secret });
}

function taken(key) {
  const value = sessionStorage.getItem(key);
  sessionStorage.removeItem(key);
  return value;
}
