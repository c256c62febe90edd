// Schemas as trees of fields. Each level is built when it is opened, so that schemas may contain themselves.

import { refName, schemaHref } from "./docs-document.js";
import { chip, code, el, lazy, link, words } from "./docs-parts.js";
import { shown } from "./page.js";

const LONG = 80;
const MANY = 12;
const DEEPEST = 8;
const INT64 = 2 ** 63; // 2 ** 63 - 1, as JavaScript reads it
const HIDDEN_FROM_SOME = { sensitive: "Needs instances.sensitive; others see •••", secret: "Shown to nobody" };

// Types

/** What a value may be, in words; named schemas are links. */
export function typeOf(schema) {
  const name = refName(schema);
  if (name) return [link(schemaHref(name), shown(name))];
  const alternatives = schema.anyOf ?? schema.oneOf;
  if (alternatives) return joined(alternatives.map(typeOf), " or ");
  if (schema.allOf) return joined(schema.allOf.map(typeOf), " and ");
  if (Object.hasOwn(schema, "const")) return ["always ", code(JSON.stringify(schema.const))];
  if (Array.isArray(schema.type)) return [schema.type.map(shown).join(" or ")];
  if (schema.type === "array") return ["array of ", ...typeOf(schema.items ?? {})];
  if (isMap(schema)) return ["map of ", ...typeOf(schema.additionalProperties)];
  if (schema.format === "binary") return ["bytes"];
  if (schema.enum && !schema.type) return [[...new Set(schema.enum.map((value) => typeof value))].join(" or ")];
  return [shown(schema.type ?? "any value") + (schema.format ? ` (${shown(schema.format)})` : "")];
}

function joined(parts, between) {
  const seen = new Set();
  const unique = parts.filter((part) => {
    const text = part.map((each) => each.textContent ?? each).join("");
    return !seen.has(text) && seen.add(text);
  });
  return unique.flatMap((part, index) => (index ? [between, ...part] : part));
}

const isMap = (schema) => schema.additionalProperties !== null && typeof schema.additionalProperties === "object";

/** The schema without the alternative `null`. */
function withoutNull(schema) {
  const kinds = (schema.anyOf ?? schema.oneOf ?? []).filter((kind) => kind.type !== "null");
  if (kinds.length !== 1) return schema;
  const { anyOf, oneOf, ...beside } = schema;
  return { ...kinds[0], ...beside };
}

// Bounds

function range(low, top, noun = "") {
  if (low === undefined && top === undefined) return "";
  const high = top === INT64 ? "2^63 − 1" : top;
  const text = low === undefined ? `at most ${high}` : high === undefined ? `at least ${low}` : low === high ? `exactly ${low}` : `${low} to ${high}`;
  return noun ? `${text} ${(high ?? low) === 1 ? noun : noun === "property" ? "properties" : `${noun}s`}` : text;
}

function boundsOf(schema) {
  return [
    range(schema.minLength, schema.maxLength, "character"),
    range(schema.minimum, schema.maximum),
    schema.exclusiveMinimum !== undefined && `more than ${schema.exclusiveMinimum}`,
    schema.exclusiveMaximum !== undefined && `less than ${schema.exclusiveMaximum}`,
    schema.multipleOf !== undefined && `multiple of ${schema.multipleOf}`,
    range(schema.minItems, schema.maxItems, "item"),
    range(schema.minProperties, schema.maxProperties, "property"),
    schema.uniqueItems && "no item twice",
  ].filter(Boolean);
}

function facts(schema, beside) {
  const plain = withoutNull(schema);
  const inner = plain.type === "array" ? withoutNull(plain.items ?? {}) : {};
  const examples = [beside.example, ...Object.values(beside.examples ?? {}).map((each) => each?.value ?? each), ...(plain.examples ?? []), plain.example];
  const lines = [];
  const values = plain.enum ?? inner.enum;
  if (values) lines.push(fact(values.length > MANY ? `One of ${values.length}` : "One of", values));
  if (plain.default !== undefined) lines.push(fact("Default", [plain.default]));
  const given = [...new Set(examples.filter((each) => each !== undefined).map((each) => JSON.stringify(each)))];
  if (given.length) lines.push(fact("Example", given.map((each) => JSON.parse(each))));
  const pattern = plain.pattern ?? inner.pattern;
  if (pattern) lines.push(fact("Pattern", [pattern]));
  return lines;
}

function fact(label, values) {
  const items = values.flatMap((value) => [" ", code(typeof value === "string" && value ? value : JSON.stringify(value))]);
  const long = items.length > 2 * MANY || items.some((item) => item.textContent?.length > LONG);
  if (long) return lazy(label, () => el("p", { class: "fact" }, items), { class: "fact" });
  return el("p", { class: "fact" }, el("span", {}, label), items);
}

// Fields

/** One field or parameter: name, type, what it means, and what is in it. */
export function field(document, { name, schema, required = false, description, trail = [], ...beside }) {
  const plain = withoutNull(schema);
  const resolved = document.resolve(plain).schema;
  const meaning = description ?? schema.description ?? "";
  return el(
    "li",
    {},
    el(
      "div",
      { class: "field" },
      el("code", { class: "name" }, shown(name)),
      el("span", { class: "type" }, typeOf(schema)),
      required && chip("required", "needed"),
      (schema.deprecated || beside.deprecated) && chip("deprecated", "warn"),
      HIDDEN_FROM_SOME[schema["x-class"]] && el("span", { class: "chip warn", title: HIDDEN_FROM_SOME[schema["x-class"]] }, schema["x-class"]),
      [...boundsOf(plain), ...boundsOf(plain.items ?? {}).map((bound) => `each ${bound}`)].map((bound) => el("span", { class: "bound" }, bound)),
    ),
    meaning && el("p", {}, words(meaning)),
    facts({ ...resolved, ...plain }, beside),
    inside(document, plain, trail),
  );
}

/** What can be opened in a schema. */
function inside(document, schema, trail) {
  const name = refName(schema) || refName(schema.items) || refName(isMap(schema) ? schema.additionalProperties : null);
  if (name && trail.includes(name)) return el("p", { class: "fact" }, "Contains itself: ", link(schemaHref(name), shown(name)));
  const parts = partsOf(document, schema);
  if (!parts.items.length) return null;
  return lazy(parts.title, () => list(document, parts, name ? [...trail, name] : trail), { class: "inside" });
}

function list(document, parts, trail) {
  return el("ul", { class: "fields" }, parts.items.map((item) => field(document, { ...item, trail })));
}

/** The tree of a whole schema, its first level open unless it has more than `most` parts. */
export function schemaTree(document, schema, { trail = [], most = Infinity } = {}) {
  const plain = withoutNull(schema);
  const name = refName(plain);
  const parts = partsOf(document, plain);
  if (!parts.items.length) return el("ul", { class: "fields" }, field(document, { name: "value", schema, trail }));
  return parts.items.length > most ? inside(document, plain, trail) : list(document, parts, name ? [...trail, name] : trail);
}

/** The fields of a schema, or its variants. */
function partsOf(document, given, depth = 0) {
  if (depth > DEEPEST) return { title: "", items: [] };
  const { schema } = document.resolve(withoutNull(given));
  if (schema.properties) return { title: count(Object.keys(schema.properties).length, "field"), items: fieldsOf(schema) };
  if (schema.type === "array") return partsOf(document, schema.items ?? {}, depth + 1);
  if (isMap(schema)) return { title: "Values", items: [{ name: "any key", schema: schema.additionalProperties }] };
  if (schema.allOf) return { title: "Fields", items: schema.allOf.flatMap((each) => partsOf(document, each, depth + 1).items) };
  const kinds = (schema.anyOf ?? schema.oneOf ?? []).filter((kind) => kind.type !== "null");
  if (kinds.length < 2 || !kinds.some((kind) => partsOf(document, kind, depth + 1).items.length)) return { title: "", items: [] };
  return { title: count(kinds.length, "variant"), items: kinds.map((kind, index) => variant(document, kind, index)) };
}

function fieldsOf(schema) {
  const needed = new Set(schema.required ?? []);
  return Object.entries(schema.properties).map(([name, each]) => ({ name, schema: each, required: needed.has(name) }));
}

function variant(document, kind, index) {
  const { schema } = document.resolve(kind);
  return { name: `variant ${index + 1}`, schema: kind, description: schema.description ?? "" };
}

function count(number, noun) {
  return `${number} ${noun}${number === 1 ? "" : "s"}`;
}
