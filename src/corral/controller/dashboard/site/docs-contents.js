// The list of everything at the left, and its filter.

import { EVENTS_HREF, eventHref, matches, operationHref, schemaHref } from "./docs-document.js";
import { el, lazy, link } from "./docs-parts.js";
import { find, sentence, shown } from "./page.js";

const MOST_SCHEMAS = 100;

export class Contents {
  #document;
  #here = "";

  constructor(document) {
    this.#document = document;
    this.#fill();
  }

  /** The list without what does not match. */
  filter(text) {
    this.#fill(text.trim());
    find("#contents").scrollTop = 0;
  }

  /** Mark the place that is shown, and open the part it is in. */
  mark(href) {
    this.#here = href;
    const part = [...find("#list").querySelectorAll("details")].find((each) => each.dataset.places?.split(" ").includes(href));
    if (part && !part.open) {
      part.open = true;
      part.dispatchEvent(new Event("toggle")); // fills it; the browser's own comes later
    }
    this.#markLinks(find("#list"));
    find("#list a[aria-current]")?.scrollIntoView({ block: "nearest" });
  }

  #markLinks(within) {
    for (const each of within.querySelectorAll("a")) {
      const isHere = each.getAttribute("href") === this.#here;
      if (isHere) each.setAttribute("aria-current", "page");
      else each.removeAttribute("aria-current");
    }
  }

  #fill(filter = "") {
    const parts = [...this.#operationParts(filter), this.#eventPart(filter), this.#schemaPart(filter)].filter((part) => part.items.length);
    find("#list").replaceChildren(...parts.map((part) => this.#part(part, filter)));
    find("#found").textContent = filter ? foundText(parts) : "";
    this.#markLinks(find("#list"));
  }

  #part({ title, items, row, first = [] }, filter) {
    const all = [...first, ...items.map(row)];
    const places = all.map((each) => each.href);
    const build = () => {
      const list = el("ul", {}, all.map((each) => el("li", {}, each.make())));
      this.#markLinks(list);
      return list;
    };
    const summary = [el("span", {}, sentence(shown(title))), " ", el("span", { class: "count" }, String(items.length))];
    return lazy(summary, build, { open: filter !== "" || places.includes(this.#here), "data-places": places.join(" ") });
  }

  #operationParts(filter) {
    const fits = (each) => matches(filter, each.method, each.path, each.summary, each.id, each.permission, each.tag);
    return [...this.#document.tags].map(([title, operations]) => ({ title, items: operations.filter(fits), row: operationRow }));
  }

  #eventPart(filter) {
    const items = [...this.#document.events.values()].filter((each) => matches(filter, each.type, each.meaning, "event"));
    const first = filter ? [] : [{ href: EVENTS_HREF, make: () => link(EVENTS_HREF, el("span", { class: "summary" }, "All events")) }];
    return { title: "Types of events", items, first, row: eventRow };
  }

  #schemaPart(filter) {
    const names = [...this.#document.schemas.keys()].filter((name) => matches(filter, name, "schema"));
    return { title: "Named schemas", items: filter ? names.slice(0, MOST_SCHEMAS) : names.sort(), row: schemaRow };
  }
}

function foundText(parts) {
  const count = parts.reduce((sum, part) => sum + part.items.length, 0);
  return count ? `${count} found` : "Nothing found";
}

function operationRow(operation) {
  const href = operationHref(operation.id);
  const make = () =>
    link(href, [
      el("span", { class: "summary" }, shown(operation.summary.replaceAll("`", ""))),
      el("span", { class: "place" }, method(operation.method), " ", shown(operation.path.replace(/^\/api\/v1/, ""))),
    ]);
  return { href, make };
}

export function method(name) {
  return el("span", { class: `method ${name.toLowerCase()}` }, name);
}

function eventRow(event) {
  const href = eventHref(event.type);
  return { href, make: () => link(href, el("span", { class: "name" }, shown(event.type))) };
}

function schemaRow(name) {
  const href = schemaHref(name);
  return { href, make: () => link(href, el("span", { class: "name" }, shown(name))) };
}

/** Filtering by keys: from the field down into the list and back, Enter to the first one, Escape to have all again. */
export function wireFilter(contents) {
  const [field, list] = [find("#filter"), find("#list")];
  const links = () => [...list.querySelectorAll("a, summary")].filter((each) => each.checkVisibility());
  field.addEventListener("input", () => contents.filter(field.value));
  field.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && field.value) {
      field.value = "";
      contents.filter("");
    } else if (event.key === "Enter") {
      find("#list a")?.click();
    } else if (event.key === "ArrowDown") {
      links()[0]?.focus();
    } else return;
    event.preventDefault();
  });
  list.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    const all = links();
    const next = all.indexOf(document.activeElement) + step;
    (all[next] ?? (next < 0 ? field : all.at(-1))).focus();
    event.preventDefault();
  });
}
