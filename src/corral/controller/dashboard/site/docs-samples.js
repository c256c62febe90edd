// Samples: values that fit a schema, and the curl line of an operation. A token is in a file with the header: other users of a
// machine see the command lines on it.

import { isStream } from "./docs-document.js";

const DEEPEST = 6;
const MOST_VALUES = 300;
const JSON_TYPE = /^application\/(.+\+)?json$/;
const BY_FORMAT = {
  "date-time": "2026-01-31T12:00:00Z",
  date: "2026-01-31",
  uuid: "018f2b6e-0000-7000-8000-000000000000",
  ipv4: "192.0.2.1",
};

/** A value that fits the schema: out of its examples, or made up. With `sparse` only of what is required or has an example. */
export function sampleOf(document, schema, { sparse = false } = {}) {
  return new Sampler(document, sparse).value(schema, []);
}

class Sampler {
  #left = MOST_VALUES;

  constructor(document, sparse) {
    this.document = document;
    this.sparse = sparse;
  }

  value(given, trail) {
    const { name, schema } = this.document.resolve(given);
    const known = knownValue(schema);
    if (known !== undefined) return known;
    if (--this.#left < 0 || trail.length > DEEPEST || (name && trail.includes(name))) return null;
    const path = [...trail, name];
    const kinds = (schema.anyOf ?? schema.oneOf)?.filter((kind) => kind.type !== "null");
    if (kinds?.length) return this.value(kinds[0], path);
    if (schema.allOf) return Object.assign({}, ...schema.allOf.map((each) => this.value(each, path)));
    if (schema.properties) return this.#object(schema, path);
    if (schema.type === "array") return this.#array(schema, path);
    if (schema.type === "object") return this.#map(schema, path);
    return plainValue(schema);
  }

  #object(schema, path) {
    const needed = new Set(schema.required ?? []);
    const wanted = ([name, each]) => !this.sparse || needed.has(name) || exampleIn(each) !== undefined;
    const fields = Object.entries(schema.properties).filter(wanted);
    return Object.fromEntries(fields.map(([name, each]) => [name, this.value(each, path)]));
  }

  #array(schema, path) {
    const item = this.value(schema.items ?? {}, path);
    return item === null ? [] : [item];
  }

  #map(schema, path) {
    const values = schema.additionalProperties;
    return values && typeof values === "object" ? { NAME: this.value(values, path) } : {};
  }
}

function exampleIn(schema) {
  return schema.examples?.[0] ?? schema.example;
}

function knownValue(schema) {
  const isPlain = !schema.properties && !schema.items && !isRef(schema);
  return exampleIn(schema) ?? schema.const ?? schema.enum?.[0] ?? (isPlain ? (schema.default ?? undefined) : undefined);
}

const isRef = (schema) => (schema.anyOf ?? []).some((kind) => kind.$ref);

function plainValue(schema) {
  const type = Array.isArray(schema.type) ? schema.type[0] : schema.type;
  if (type === "integer" || type === "number") return Math.max(schema.minimum ?? 1, 0);
  if (type === "boolean") return false;
  if (type === "string") return BY_FORMAT[schema.format] ?? "text";
  return null;
}

/** The example of a content, as text, and whether it was made up; null where there is none to show. */
export function contentSample(document, mediaType, content, options) {
  if (!JSON_TYPE.test(mediaType)) return null;
  const named = Object.values(content.examples ?? {})[0];
  const given = content.example ?? named?.value;
  const value = given ?? sampleOf(document, content.schema ?? {}, options);
  return { text: JSON.stringify(value, null, 2), madeUp: given === undefined };
}

// curl

const HEADER_FILE = "data/admin.header";

/** The command line that makes the file with the header that the samples send, for its owner only. */
export const HEADER_FILE_LINE = `(umask 077; printf 'Authorization: Bearer %s\\n' "$(cat data/admin.token)" > ${HEADER_FILE})`;

/** A command line that reads an address of this controller. */
export function curlGet(address) {
  return `curl -H @${HEADER_FILE} ${quoted(address)}`;
}

function quoted(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

function filled(path, parameters) {
  return path.replace(/\{([^}]+)\}/g, (_, name) => {
    const found = parameters.find((each) => each.in === "path" && each.name === name);
    const example = found?.example ?? Object.values(found?.examples ?? {})[0]?.value ?? exampleIn(found?.schema ?? {});
    return example === undefined ? name.toUpperCase() : String(example).split("/").map(encodeURIComponent).join("/");
  });
}

function queryOf(parameters) {
  const needed = parameters.filter((each) => each.in === "query" && each.required);
  const pairs = needed.map((each) => [each.name, String(each.example ?? exampleIn(each.schema ?? {}) ?? each.schema?.default ?? each.name.toUpperCase())]);
  return pairs.length ? `?${new URLSearchParams(pairs)}` : "";
}

function bodyWords(document, operation) {
  const contents = Object.entries(operation.raw.requestBody?.content ?? {});
  const json = contents.find(([type]) => JSON_TYPE.test(type));
  if (contents.some(([type]) => type === "multipart/form-data")) return ["-F file=@FILE"];
  if (!json) return contents.length ? [`-H ${quoted(`Content-Type: ${contents[0][0]}`)}`, "--data-binary @FILE"] : [];
  const sample = contentSample(document, json[0], json[1], { sparse: true });
  return [`-H ${quoted(`Content-Type: ${json[0]}`)}`, `-d ${quoted(JSON.stringify(JSON.parse(sample.text)))}`];
}

function isFile(operation) {
  const good = operation.responses.find(([status]) => status.startsWith("2"))?.[1];
  const types = Object.keys(good?.content ?? {});
  return types.length > 0 && !types.some((type) => JSON_TYPE.test(type) || type.startsWith("text/"));
}

/** A command line that sends the operation to this controller. */
export function curlLine(document, operation, origin) {
  const words = ["curl"];
  if (isStream(operation)) words.push("-N");
  if (operation.method !== "GET") words.push(`-X ${operation.method}`);
  if (operation.raw.security?.length !== 0) words.push(`-H @${HEADER_FILE}`);
  words.push(...bodyWords(document, operation));
  if (isFile(operation)) words.push("-o FILE");
  words.push(quoted(origin + filled(operation.path, operation.parameters) + queryOf(operation.parameters)));
  return words.join(" \\\n  ").replace(" \\\n  ", " ");
}
