// Forms of the pages /login and /first-admin: sent by script, with what was refused shown at its field.

import { Refusal, SessionOver } from "./api.js";
import { find, tell } from "./page.js";

const NOT_SENT = new Set(["repeat", "username"]);
const ASKED_NEXT = { SECOND_FACTOR_REQUIRED: ".totp", PASSWORD_CHANGE_REQUIRED: ".change" };

export function open(part, isOpen = true) {
  part.hidden = !isOpen;
  if (part instanceof HTMLFieldSetElement) part.disabled = !isOpen;
}

function clearErrors(form) {
  find(".error", form).replaceChildren();
  for (const input of form.elements) input.removeAttribute("aria-invalid");
}

export function clear(form) {
  form.reset();
  clearErrors(form);
}

function values(form) {
  const given = [...new FormData(form)].filter(([name]) => !NOT_SENT.has(name));
  return Object.fromEntries(given);
}

function checkRepeats(form) {
  for (const input of form.querySelectorAll("[data-repeats]:enabled")) {
    if (input.value !== form.elements[input.dataset.repeats].value) {
      throw new Refusal({ message: "the two passwords differ", field: "repeat" });
    }
  }
}

/** Show what was refused, and lead to the field that it is about. */
function refuse(form, error) {
  tell(find(".error", form), error);
  const field = error.code === "LOGIN_FAILED" ? secretField(form) : form.elements.namedItem(error.field);
  if (!field || field.matches(":disabled")) return;
  if (field.name === error.field) field.setAttribute("aria-invalid", "true");
  field.focus();
  field.select();
}

/** What was wrong is not told: most likely it is what was typed last. */
function secretField(form) {
  return find("[name=totp]:enabled, [name=recovery_code]:enabled", form) ?? find("[type=password]", form);
}

/** The button is held back, with the seconds left on it. */
async function holdBack(button, seconds) {
  const label = button.textContent;
  const end = performance.now() + seconds * 1000;
  for (let left = seconds; left > 0; left = Math.ceil((end - performance.now()) / 1000)) {
    button.textContent = `${label} (${left} s)`;
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
  button.textContent = label;
}

export function onSubmit(form, act) {
  const button = find("[type=submit]", form);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (button.disabled) return;
    button.disabled = true;
    clearErrors(form);
    try {
      checkRepeats(form);
      await act(values(form));
      clear(form);
    } catch (error) {
      if (error instanceof SessionOver) return;
      if (!(error instanceof Refusal)) throw error;
      if (!askNext(form, error)) refuse(form, error);
      if (error.retryAfter) await holdBack(button, error.retryAfter);
    } finally {
      button.disabled = false;
    }
  });
}

/** A login that lacks something is sent again with it: open the fields for that. */
function askNext(form, error) {
  const part = ASKED_NEXT[error.code] && find(ASKED_NEXT[error.code], form);
  if (!part?.hidden) return false;
  open(part);
  find("input", part).focus();
  return true;
}

export function onSwap(form) {
  const [totp, recovery] = [find(".totp", form), find(".recovery", form)];
  for (const [from, to] of [[totp, recovery], [recovery, totp]]) {
    find(".swap", from).addEventListener("click", () => {
      open(from, false);
      open(to);
      find("input", to).focus();
    });
  }
}
