// Elements that the views of the documentation are built of. All text becomes text nodes, and never markup.

import { copyTextOf, shown } from "./page.js";

const FORGET_AFTER = 2000;

/** An element. `attributes` are set as they are; children are elements and texts, in lists as deep as it comes; false and null are none. */
export function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== false && value !== undefined) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter(Boolean));
  return element;
}

export function code(text) {
  return el("code", {}, shown(String(text)));
}

export function chip(text, kind = "") {
  return el("span", { class: `chip ${kind}`.trim() }, shown(text));
}

export function link(href, text, attributes = {}) {
  return el("a", { href, ...attributes }, text);
}

/** The words of one line: what is between backticks is code. */
export function words(text) {
  return shown(text.replaceAll("\n", " "))
    .split("`")
    .map((part, index) => (index % 2 ? el("code", {}, part) : part));
}

/** Paragraphs and lists of a description. */
export function prose(text) {
  return text
    .split(/\n{2,}/)
    .filter((block) => block.trim())
    .map((block) => {
      if (!block.startsWith("- ")) return el("p", {}, words(block));
      const items = block.slice(2).split(/\n- /);
      return el("ul", { class: "prose" }, items.map((item) => el("li", {}, words(item))));
    });
}

export function section(title, ...children) {
  return el("section", {}, el("h2", {}, title), ...children);
}

/** A text to copy, with a button for it. */
export function copyBox(label, content) {
  const status = el("span", { role: "status", class: "hint" });
  const button = el("button", { type: "button", class: "copy", "aria-label": `Copy: ${label}` }, "Copy");
  button.addEventListener("click", () => {
    status.textContent = copyTextOf(content) ? "Copied" : "Selected: press Ctrl+C";
    setTimeout(() => status.replaceChildren(), FORGET_AFTER);
  });
  return { button, status };
}

/** Lines of a program or a document, as they are. */
export function listing(label, text) {
  const lines = text.split("\n").map(shown).join("\n");
  const content = el("pre", { tabindex: "0", role: "region", "aria-label": label }, el("code", {}, lines));
  const { button, status } = copyBox(label, content);
  return el("div", { class: "listing" }, el("div", { class: "head" }, el("span", {}, label), status, button), content);
}

/** A part whose content is built when it is opened for the first time. */
export function lazy(summary, build, { open = false, ...attributes } = {}) {
  const details = el("details", attributes, el("summary", {}, summary));
  const fill = () => details.open && details.childElementCount === 1 && details.append(...[build()].flat());
  details.addEventListener("toggle", fill);
  details.open = open;
  fill(); // the event comes later
  return details;
}
