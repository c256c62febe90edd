// The views beside those of operations: the overview, a schema, the events.

import { method } from "./docs-contents.js";
import { EVENTS_HREF, eventHref, operationHref, schemaHref } from "./docs-document.js";
import { code, el, lazy, link, listing, prose, section, words } from "./docs-parts.js";
import { HEADER_FILE_LINE, curlGet, sampleOf } from "./docs-samples.js";
import { schemaTree, typeOf } from "./docs-schema-tree.js";
import { sentence, shown } from "./page.js";

const ERRORS = "ErrorShape";

export function overview(document) {
  const { info = {} } = document.raw;
  const counts = `${document.operations.size} operations, ${document.events.size} types of events, ${document.schemas.size} schemas.`;
  return [
    el("h1", {}, "Corral API"),
    prose(info.description ?? ""),
    el("p", { class: "hint" }, counts),
    saveButton(document),
    section(
      "Credentials",
      el("p", {}, words("Programs send `Authorization: Bearer TOKEN`. Browsers have a session: a cookie, and the header `X-Corral-CSRF`. Every operation says which permission it needs.")),
      el("p", {}, words("Fields marked `sensitive` are `•••` to callers without the permission `instances.sensitive`.")),
      listing("curl", `${HEADER_FILE_LINE}\n${curlGet(`${location.origin}/api/v1/auth/me`)}`),
    ),
    errors(document),
    section("Operations", [...document.tags].map(([tag, operations]) => tagPart(tag, operations))),
  ].flat();
}

/** The document as it came, as a file; its address is of no use after the click. */
function saveButton(document) {
  const button = el("button", { type: "button" }, "Save openapi.json");
  button.addEventListener("click", () => {
    const blob = new Blob([document.text], { type: "application/json" });
    const anchor = el("a", { href: URL.createObjectURL(blob), download: "openapi.json" });
    anchor.click();
    setTimeout(() => URL.revokeObjectURL(anchor.href), 1000);
  });
  return el("p", {}, button);
}

function errors(document) {
  if (!document.schemas.has(ERRORS)) return null;
  const sample = JSON.stringify(sampleOf(document, document.schemas.get(ERRORS)), null, 2);
  return section("Refusals", el("p", {}, "What is refused is answered with a status of 400 or more and ", link(schemaHref(ERRORS), ERRORS), "."), listing("Body of a refusal", sample));
}

function tagPart(tag, operations) {
  const build = () => el("ul", { class: "operations" }, operations.map((each) => el("li", {}, operationLink(each))));
  return lazy(`${sentence(shown(tag))} (${operations.length})`, build);
}

function operationLink(operation) {
  return [link(operationHref(operation.id), words(operation.summary)), el("span", { class: "place" }, method(operation.method), " ", shown(operation.path))];
}

// Schemas

export function schemaView(document, name) {
  const schema = document.schemas.get(name);
  return [
    el("p", { class: "crumb" }, "Schema"),
    el("h1", {}, el("bdi", {}, shown(name))),
    columns(document, schema, name),
    usersPart(document, name),
  ].flat();
}

function columns(document, schema, name) {
  const parts = [prose(schema.description ?? ""), el("p", { class: "media" }, typeOf({ ...schema, $ref: undefined })), schemaTree(document, schema, { trail: [name] })];
  const text = JSON.stringify(sampleOf(document, schema), null, 2);
  return el("div", { class: "columns" }, el("div", { class: "text" }, parts), el("aside", { "aria-label": "Samples" }, listing("Example, made from the schema", text)));
}

function usersPart(document, name) {
  const users = document.usersOf(name);
  const schemas = users.schemas.filter((each) => each !== name);
  if (!users.operations.length && !schemas.length) return null;
  return section(
    "Used by",
    el("ul", { class: "operations" }, users.operations.map((each) => el("li", {}, operationLink(each)))),
    schemas.length ? el("p", {}, "Schemas: ", schemas.flatMap((each, index) => [index ? ", " : "", link(schemaHref(each), shown(each))])) : null,
  );
}

// Events

export function eventsView(document) {
  const rows = [...document.events.values()].map((event) =>
    el("tr", {}, el("th", { scope: "row" }, link(eventHref(event.type), shown(event.type))), el("td", {}, words(event.meaning))),
  );
  const stream = document.operations.get("get_events_stream");
  return [
    el("h1", {}, "Events"),
    stream && el("p", {}, link(operationHref(stream.id), shown(stream.summary)), ": ", code(stream.path), " sends them as they happen."),
    el("table", { class: "wide" }, el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Type"), el("th", { scope: "col" }, "Meaning"))), el("tbody", {}, rows)),
  ].filter(Boolean);
}

export function eventView(document, event) {
  const data = event.schema.properties?.data;
  return [
    el("p", { class: "crumb" }, link(EVENTS_HREF, "Events")),
    el("h1", {}, el("bdi", {}, shown(event.type))),
    prose(event.meaning),
    el(
      "div",
      { class: "columns" },
      el("div", { class: "text" }, data ? section("Data", el("p", { class: "media" }, typeOf(data)), schemaTree(document, data)) : null, section("Frame", schemaTree(document, event.schema))),
      el("aside", { "aria-label": "Samples" }, listing("Frame, made from the schema", JSON.stringify(sampleOf(document, event.schema), null, 2))),
    ),
  ].flat();
}

export function nothingView() {
  return [el("h1", {}, "Not found"), el("p", {}, "The description has nothing of this name. ", link("#/", "Overview"))];
}
