// The API as the pages call it: with the session of whoever is in front of them, or with a token that was typed in.

export const CSRF = "corral.csrf";

/** A refusal: of the API, or of a page before anything is sent. */
export class Refusal extends Error {
  constructor({ code = "", message, hint = "", field = "" }, retryAfter = 0) {
    super(message);
    Object.assign(this, { code, hint, field, retryAfter });
  }
}

/** The session is over, and the page has shown that. */
export class SessionOver extends Error {}

/** The answer of the API, decoded. */
export async function call(method, path, body) {
  const text = await callForText(method, path, body);
  return text ? JSON.parse(text) : null;
}

/** The answer of the API as it is. With `token` the session takes no part in it. */
export async function callForText(method, path, body, token = "") {
  const headers = token ? { Authorization: `Bearer ${token}` } : { "X-Corral-CSRF": localStorage.getItem(CSRF) ?? "" };
  if (body) headers["Content-Type"] = "application/json";
  const credentials = token ? "omit" : "same-origin";
  const options = { method, headers, credentials, body: body && JSON.stringify(body), cache: "no-store", redirect: "error" };
  let answer;
  let text;
  try {
    answer = await fetch(path, options);
    text = await answer.text();
  } catch {
    throw new Refusal({ message: "the controller does not answer", hint: "check the connection, and try again" });
  }
  if (answer.ok) return text;
  throw new Refusal(errorIn(text, answer.status), Number(answer.headers.get("Retry-After")) || 0);
}

function errorIn(text, status) {
  try {
    return JSON.parse(text).error;
  } catch {
    return { message: `the answer is ${status} and not from Corral`, hint: "something between here and the controller answers" };
  }
}
