// The view of one operation.

import { method } from "./docs-contents.js";
import { EVENTS_HREF, isSocket, operationHref, refName, schemaHref } from "./docs-document.js";
import { chip, code, copyBox, el, lazy, link, listing, prose, section, words } from "./docs-parts.js";
import { contentSample, curlLine } from "./docs-samples.js";
import { field, schemaTree, typeOf } from "./docs-schema-tree.js";
import { sentence, shown } from "./page.js";

const MOST_OPEN = 20; // of an answer: what comes after it shall be found
const FEW = 3;
const PLACES = { path: "In the path", query: "In the query", header: "Headers", cookie: "Cookies" };

export function operationView(document, operation) {
  const { raw } = operation;
  return [
    el("p", { class: "crumb" }, sentence(shown(operation.tag))),
    el("h1", {}, words(operation.summary)),
    address(operation),
    access(document, operation),
    el(
      "div",
      { class: "columns" },
      el(
        "div",
        { class: "text" },
        raw.deprecated && el("p", {}, chip("deprecated", "warn")),
        prose(raw.description ?? ""),
        parameters(document, operation),
        requestBody(document, raw.requestBody),
        answers(document, operation),
        messages(document, raw["x-messages"]),
        refusals(document, operation),
      ),
      samples(document, operation),
    ),
  ].filter(Boolean);
}

function address(operation) {
  const path = el("code", {}, shown(operation.path));
  const { button, status } = copyBox("path", path);
  return el("div", { class: "address" }, method(operation.method), path, status, button);
}

// Who may

function access(document, operation) {
  const schemes = document.raw.components?.securitySchemes ?? {};
  const ways = (operation.raw.security ?? []).flatMap((each) => Object.keys(each)).map((name) => way(name, schemes[name] ?? {}));
  const facts = [
    operation.permission && ["Permission", code(operation.permission)],
    ["Credentials", ways.length ? ways.flatMap((each, index) => (index ? [", or ", ...each] : each)) : "none needed"],
    ["Operation id", code(operation.id)],
  ].filter(Boolean);
  return el("dl", { class: "access" }, facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}

function way(name, scheme) {
  if (scheme.type === "apiKey") return ["a ticket: ", code(`${scheme.name}=…`), ` in the ${scheme.in === "query" ? "query" : shown(scheme.in ?? "")}`];
  const hint = scheme.description ? [" ", el("span", { class: "hint" }, words(scheme.description))] : [];
  return name === "token" ? ["a session or an API token", ...hint] : [shown(`the ${name} token`), ...hint];
}

// Parameters, bodies, answers

function parameters(document, operation) {
  if (!operation.parameters.length) return null;
  const parts = Object.entries(PLACES).map(([place, title]) => {
    const rows = operation.parameters.filter((each) => each.in === place).map((each) => field(document, { ...each, schema: each.schema ?? {} }));
    return rows.length ? [el("h3", {}, title), el("ul", { class: "fields" }, rows)] : null;
  });
  return section("Parameters", parts);
}

function requestBody(document, body) {
  if (!body) return null;
  const note = el("p", { class: "hint" }, body.required ? "Required." : "May be left out.");
  return section("Request body", note, prose(body.description ?? ""), contents(document, body.content ?? {}));
}

/** Contents with one schema are shown once, with all their types; the rest as for `schemaTree`. */
function contents(document, given, options) {
  const groups = new Map();
  for (const [type, content] of Object.entries(given)) {
    const key = JSON.stringify(content.schema ?? {});
    groups.set(key, { content, types: [...(groups.get(key)?.types ?? []), type] });
  }
  return [...groups.values()].map(({ content, types }) => {
    const schema = content.schema ?? {};
    const kind = el("p", { class: "media" }, types.flatMap((type, index) => (index ? [" or ", code(type)] : [code(type)])), ": ", typeOf(schema));
    return el("div", { class: "content" }, kind, frames(content), isPlain(schema) ? null : schemaTree(document, schema, options));
  });
}

const isPlain = (schema) => !schema.$ref && !schema.properties && !schema.anyOf && !schema.oneOf && !schema.allOf && !schema.items;

function frames(content) {
  return content["x-event"] ? el("p", {}, "One frame for each event: ", link(EVENTS_HREF, "all types of events"), ".") : null;
}

function answers(document, operation) {
  const good = operation.responses.filter(([status]) => !isRefusal(status));
  if (!good.length) return null;
  return section("Answers", good.map(([status, answer]) => answerPart(document, status, answer, operation.summary)));
}

const isRefusal = (status) => status === "default" || status.startsWith("4") || status.startsWith("5");

function answerPart(document, status, answer, summary) {
  const about = answer.description && answer.description !== summary ? el("p", {}, words(answer.description)) : null;
  const body = [contents(document, answer.content ?? {}, { most: MOST_OPEN }), headers(document, answer.headers), links(document, answer.links)].flat(Infinity).filter(Boolean);
  const nothing = el("p", { class: "hint" }, status === "101" ? "The connection becomes a WebSocket." : "Without a body.");
  return el("div", { class: "answer" }, el("h3", {}, chip(status, "ok")), about, body.length ? body : nothing);
}

function headers(document, given) {
  if (!given) return null;
  const rows = Object.entries(given).map(([name, each]) => field(document, { name, ...each, schema: each.schema ?? {} }));
  return [el("h4", {}, "Headers"), el("ul", { class: "fields" }, rows)];
}

/** The operations that go on with what an answer has. */
function links(document, given) {
  if (!given) return null;
  const rows = Object.entries(given).map(([name, each]) => {
    const operation = document.operations.get(each.operationId);
    const target = operation ? link(operationHref(operation.id), words(operation.summary)) : shown(name);
    const from = Object.entries(each.parameters ?? {}).flatMap(([parameter, value]) => [" ", code(`${parameter} = ${value}`)]);
    return el("li", {}, target, from, each.description && el("p", {}, words(each.description)));
  });
  return lazy(`Leads to ${rows.length} operation${rows.length === 1 ? "" : "s"}`, () => el("ul", { class: "links" }, rows), { class: "inside", open: rows.length <= FEW });
}

function messages(document, given) {
  if (!given) return null;
  const rows = Object.entries(given).map(([name, schema]) => field(document, { name, schema }));
  return section("Messages", el("ul", { class: "fields" }, rows));
}

// Refusals

function refusals(document, operation) {
  const found = operation.responses.filter(([status]) => isRefusal(status));
  if (!found.length) return null;
  const rows = found.map(([status, answer]) =>
    el("tr", {}, el("th", { scope: "row" }, status === "default" ? "others" : status), el("td", {}, prose(answer.description ?? ""), codes(answer), headerNames(answer))),
  );
  const kinds = new Set(found.flatMap(([, answer]) => Object.values(answer.content ?? {})).map(bodyName));
  kinds.delete("");
  const body = [...kinds].flatMap((name) => [" ", link(schemaHref(name), shown(name))]);
  return section("Refusals", body.length ? el("p", { class: "hint" }, "Body:", body) : null, el("table", {}, el("tbody", {}, rows)));
}

/** The name of the schema of a refusal, which may be narrowed to its codes. */
function bodyName(content) {
  const schema = content.schema ?? {};
  return [schema, ...(schema.allOf ?? [])].map(refName).find(Boolean) ?? "";
}

function headerNames(answer) {
  const names = Object.keys(answer.headers ?? {});
  return names.length ? el("p", { class: "hint" }, "With ", names.map((name) => [code(name), " "])) : null;
}

/** The codes of a refusal that its description does not explain: a list, or a table of what they mean. */
function codes(answer) {
  const given = answer["x-codes"] ?? codesIn(Object.values(answer.content ?? {})[0]?.schema);
  if (!given) return null;
  if (Array.isArray(given)) {
    const left = given.filter((each) => !answer.description?.includes(each));
    return left.length ? el("p", { class: "codes" }, left.map((each) => [code(each), " "])) : null;
  }
  const rows = Object.entries(given).map(([name, meaning]) => el("li", {}, code(name), " ", words(String(meaning))));
  return el("ul", { class: "codes" }, rows);
}

function codesIn(schema, depth = 0) {
  if (!schema || typeof schema !== "object" || depth > 4) return null;
  const own = schema.properties?.code?.enum ?? schema.properties?.error?.properties?.code?.enum;
  return own ?? [...(schema.allOf ?? [])].map((each) => codesIn(each, depth + 1)).find(Boolean) ?? null;
}

// Samples

function samples(document, operation) {
  const parts = isSocket(operation) ? [] : [listing("curl", curlLine(document, operation, location.origin))];
  const body = firstSample(document, operation.raw.requestBody?.content, { sparse: true });
  if (body) parts.push(listing(body.madeUp ? "Request body, made from the schema" : "Request body", body.text));
  for (const [status, answer] of operation.responses.filter(([each]) => each.startsWith("2"))) {
    const sample = firstSample(document, answer.content, {});
    if (sample) parts.push(listing(sample.madeUp ? `Answer ${status}, made from the schema` : `Answer ${status}`, sample.text));
  }
  return parts.length ? el("aside", { "aria-label": "Samples" }, parts) : null;
}

function firstSample(document, given, options) {
  const samples = Object.entries(given ?? {}).map(([type, content]) => contentSample(document, type, content, options));
  return samples.find(Boolean) ?? null;
}
