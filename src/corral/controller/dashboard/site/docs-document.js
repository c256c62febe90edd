// The OpenAPI document, indexed: operations by tag and id, schemas by name, events by type.

const METHODS = ["get", "post", "put", "patch", "delete"];
const REF = "#/components/schemas/";
const COMPONENT = /^#\/components\/(parameters|requestBodies|responses|headers|links|examples)\/([^/]+)$/;
const place = (kind) => (name) => `#/${kind}/${encodeURIComponent(name)}`;

export const operationHref = place("operations");
export const schemaHref = place("schemas");
export const eventHref = place("events");
export const EVENTS_HREF = "#/events";

export class ApiDocument {
  #users = null;

  constructor(text) {
    const raw = JSON.parse(text);
    this.text = text;
    this.raw = raw;
    this.schemas = new Map(Object.entries(raw.components?.schemas ?? {}));
    this.operations = new Map(operationsIn(raw).map((each) => [each.id, each]));
    this.tags = byTag(this.operations.values());
    this.events = eventsIn(this.schemas);
  }

  /** The schema that a `$ref` stands for, with its name; what stands beside the `$ref` wins. */
  resolve(schema) {
    const name = refName(schema);
    if (!name) return { name: "", schema: schema ?? {} };
    const { $ref, ...beside } = schema;
    return { name, schema: { ...this.schemas.get(name), ...beside } };
  }

  /** The schemas and the operations that name this schema. */
  usersOf(name) {
    this.#users ??= this.#findUsers();
    return this.#users.get(name) ?? { operations: [], schemas: [] };
  }

  #findUsers() {
    const users = new Map();
    const note = (kind, user, names) => {
      for (const name of names) {
        if (!users.has(name)) users.set(name, { operations: [], schemas: [] });
        users.get(name)[kind].push(user);
      }
    };
    for (const operation of this.operations.values()) note("operations", operation, namesIn(operation.raw));
    for (const [name, schema] of this.schemas) note("schemas", name, namesIn(schema));
    return users;
  }
}

export function refName(schema) {
  const ref = schema?.$ref;
  return typeof ref === "string" && ref.startsWith(REF) ? ref.slice(REF.length) : "";
}

function namesIn(node, found = new Set()) {
  if (node === null || typeof node !== "object") return found;
  if (refName(node)) found.add(refName(node));
  for (const part of Object.values(node)) namesIn(part, found);
  return found;
}

function operationsIn(raw) {
  const found = [];
  for (const [path, methods] of Object.entries(raw.paths ?? {})) {
    for (const method of METHODS.filter((each) => Object.hasOwn(methods, each))) {
      found.push(operation(path, method, new Components(raw).inside(methods[method]), methods.parameters ?? []));
    }
  }
  return found;
}

/** What operations share. Schemas stay references: they have places of their own. */
class Components {
  constructor(raw) {
    this.kinds = raw.components ?? {};
  }

  /** The operation with the components that its parts refer to. */
  inside(operation) {
    const { parameters = [], requestBody, responses = {} } = operation;
    const answers = Object.entries(responses).map(([status, answer]) => [status, this.#answer(this.#target(answer))]);
    return {
      ...operation,
      parameters: parameters.map((each) => this.#target(each)),
      requestBody: requestBody && this.#target(requestBody),
      responses: Object.fromEntries(answers),
    };
  }

  #answer(answer) {
    const each = (table) => table && Object.fromEntries(Object.entries(table).map(([name, part]) => [name, this.#target(part)]));
    return { ...answer, headers: each(answer.headers), links: each(answer.links) };
  }

  #target(part) {
    const [, kind, name] = COMPONENT.exec(part.$ref ?? "") ?? [];
    const found = this.kinds[kind] ?? {};
    return Object.hasOwn(found, name) ? found[name] : part;
  }
}

function operation(path, method, raw, common) {
  return {
    raw,
    path,
    method: method.toUpperCase(),
    id: raw.operationId ?? `${method} ${path}`,
    tag: raw.tags?.[0] ?? "other",
    summary: raw.summary ?? path,
    permission: raw["x-permission"] ?? "",
    parameters: [...common, ...(raw.parameters ?? [])],
    responses: Object.entries(raw.responses ?? {}),
  };
}

function byTag(operations) {
  const tags = new Map();
  for (const each of operations) tags.set(each.tag, [...(tags.get(each.tag) ?? []), each]);
  return new Map([...tags].sort(([a], [b]) => a.localeCompare(b)));
}

/** An event is a schema with a mark and a type of its own. */
function eventsIn(schemas) {
  const found = new Map();
  for (const [name, schema] of schemas) {
    const type = schema["x-event"] && schema.properties?.type?.const;
    if (type) found.set(type, { type, name, schema, meaning: schema.description ?? "" });
  }
  return found;
}

/** Whether each word of the filter is in one of these texts. */
export function matches(filter, ...texts) {
  const within = texts.join("\n").toLowerCase();
  return filter.toLowerCase().split(/\s+/).every((word) => within.includes(word));
}

export const isStream = (operation) => operation.responses.some(([, answer]) => answer.content?.["text/event-stream"]);
export const isSocket = (operation) => operation.responses.some(([status]) => status === "101");
