// Elements and texts of the pages.

const UNSEEN = /[\p{Cc}\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/gu;

export const find = (selector, within = document) => within.querySelector(selector);
export const meta = (name) => find(`meta[name="${name}"]`).content;
export const made = (tag, text) => Object.assign(document.createElement(tag), { textContent: text });

/** Text of others: what would not be seen, or would turn the text around, becomes a box. */
export function shown(text) {
  return text.replace(UNSEEN, "□");
}

export function sentence(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** Write an error and its hint into an element. */
export function tell(element, error) {
  const lines = [error.message, error.hint].filter(Boolean);
  element.replaceChildren(...lines.map((line) => made("span", shown(sentence(line)))));
}

/** Go on at a text, where there is no field to go on at. */
export function land(text) {
  text.tabIndex = -1;
  text.focus();
}

/** Copy the text of an element, which is selected for it; false: it could not be copied, and stays selected. */
export function copyTextOf(element) {
  getSelection().selectAllChildren(element);
  return document.execCommand("copy"); // unlike navigator.clipboard it is there over plain HTTP, too
}
