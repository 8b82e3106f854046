// JSON documents: RFC 8785 canonical form, and the exact members that a format has.
//
// A shape is a function that takes a JSON value and returns its parsed form; it throws if the
// value is anything else. Numbers of the formats are decimal strings (parsed as BigInt).

import { decimal, equal, fromBase64, isUnicode, utf8 } from "./bytes.mjs";

// A failed verification. The message names places by the format's own names and repeats nothing
// that the document holds.
export class Refused extends Error {}

class ShapeError extends Refused {
  constructor(problem, path = "") {
    super(`${path || "the document"} ${problem}`);
    this.problem = problem;
    this.path = path;
  }

  inside(name) {
    const joint = this.path && !this.path.startsWith("[") ? "." : "";
    return new ShapeError(this.problem, name + joint + this.path);
  }
}

export function shapeError(problem, path) {
  return new ShapeError(problem, path);
}

function within(name, shape, value) {
  try {
    return shape(value);
  } catch (error) {
    throw error instanceof ShapeError ? error.inside(name) : error;
  }
}

// --- RFC 8785 ---------------------------------------------------------------------------

const NOT_CANONICAL = "the JSON is valid but not in RFC 8785 canonical form";
const SHORT = { "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r" };

function quoted(text) {
  if (!isUnicode(text)) throw new Refused(NOT_CANONICAL);
  const escaped = text.replace(/["\\\u0000-\u001f]/g, (character) => {
    if (character === '"' || character === "\\") return `\\${character}`;
    const code = character.charCodeAt(0).toString(16).padStart(4, "0");
    return SHORT[character] ?? `\\u${code}`;
  });
  return `"${escaped}"`;
}

export function canonical(value) {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (value !== null && typeof value === "object") {
    // Default sorting compares UTF-16 code units, as RFC 8785 section 3.2.3 demands.
    const names = Object.keys(value).sort();
    return `{${names.map((name) => `${quoted(name)}:${canonical(value[name])}`).join(",")}}`;
  }
  if (typeof value === "string") return quoted(value);
  // Appendix B: larger integers are not interoperable, and no format here has a number.
  if (/^-?\d+$/.test(value) && !Number.isSafeInteger(value)) {
    throw new Refused(NOT_CANONICAL);
  }
  return String(value);
}

const MOST_NESTED = 64; // objects and arrays within each other

function isDeep(value) {
  const isOpen = (one) => one !== null && typeof one === "object";
  let level = [value].filter(isOpen);
  for (let depth = 0; depth < MOST_NESTED && level.length; depth += 1) {
    level = level.flatMap((one) => Object.values(one).filter(isOpen));
  }
  return level.length > 0;
}

// The value of canonical JSON; throws Refused for any other bytes.
export function parse(bytes) {
  let value;
  try {
    value = JSON.parse(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes));
  } catch {
    value = undefined;
  }
  if (value === undefined || isDeep(value)) {
    throw new Refused(`the bytes are not valid JSON, or nested more than ${MOST_NESTED} deep`);
  }
  if (!equal(utf8(canonical(value)), bytes)) throw new Refused(NOT_CANONICAL);
  return value;
}

// --- values -----------------------------------------------------------------------------

export function text(value) {
  if (typeof value !== "string" || !value) {
    throw shapeError("must be a string that is not empty");
  }
  return value;
}

export function flag(value) {
  if (typeof value !== "boolean") throw shapeError("must be true or false");
  return value;
}

export function count(value) {
  const number = decimal(text(value), 1n << 63n);
  if (number === null) throw shapeError("must be a decimal number in a string");
  return number;
}

export function blob(value) {
  const bytes = fromBase64(text(value));
  if (bytes === null) throw shapeError("must be standard base64 with padding");
  return bytes;
}

export function hash(value) {
  const bytes = blob(value);
  if (bytes.length !== 32) throw shapeError("must be the base64 of 32 bytes");
  return bytes;
}

export function isObject(value) {
  return value !== null && typeof value === "object" && !Array.isArray(value);
}

export function digest(value) {
  const fits = isObject(value) && Object.keys(value).join() === "sha256";
  if (!fits || typeof value.sha256 !== "string" || !/^[0-9a-f]{64}$/.test(value.sha256)) {
    throw shapeError('must be {"sha256": 64 lower-case hexadecimal digits}');
  }
  return value.sha256;
}

export function uuid(value) {
  const form = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
  if (typeof value !== "string" || !form.test(value)) {
    throw shapeError("must be a UUID in lower case");
  }
  return value;
}

export function moment(value) {
  const form = /^(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)Z$/;
  const found = typeof value === "string" ? form.exec(value) : null;
  if (found !== null) {
    const [year, month, day, hour, minute, second] = found.slice(1).map(Number);
    const leap = year % 4 === 0 && (year % 100 !== 0 || year % 400 === 0);
    const days = [31, leap ? 29 : 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    const calendar = year >= 1 && month >= 1 && month <= 12 && day >= 1 && day <= days[month - 1];
    if (calendar && hour < 24 && minute < 60 && second < 60) return value;
  }
  throw shapeError("must be a UTC time such as 2026-11-21T08:30:00Z");
}

export function one(...options) {
  return (value) => {
    if (typeof value !== "string" || !options.includes(value)) {
      throw shapeError(`must be ${options.map((option) => `'${option}'`).join(" or ")}`);
    }
    return value;
  };
}

export function optional(shape) {
  return (value) => (value === null ? null : shape(value));
}

export function array(shape) {
  return (value) => {
    if (!Array.isArray(value)) throw shapeError("must be an array");
    return value.map((item, at) => within(`[${at}]`, shape, item));
  };
}

export function exactly(...shapes) {
  return (value) => {
    if (!Array.isArray(value) || value.length !== shapes.length) {
      throw shapeError(`must be an array of ${shapes.length}`);
    }
    return value.map((item, at) => within(`[${at}]`, shapes[at], item));
  };
}

// An object with any names, as a Map: no name of a document can reach an object's own members.
export function mapping(shape) {
  return (value) => {
    if (!isObject(value) || Object.keys(value).includes("")) {
      throw shapeError("must be an object whose names are not empty");
    }
    return new Map(
      Object.keys(value).map((name) => [name, within("*", shape, value[name])]),
    );
  };
}

// shapes: of the required members. absent: of those that are left out if empty.
export function members(shapes, absent = {}) {
  const required = Object.keys(shapes);
  const all = { ...shapes, ...absent };
  const names = Object.keys(all);
  return (value) => {
    const own = isObject(value) ? Object.keys(value) : [];
    if (!own.every((name) => names.includes(name)) || !required.every((name) => own.includes(name))) {
      throw shapeError(`must be an object with exactly ${names.join(", ")}`);
    }
    // In this order, not the document's: with two errors both verifiers report the same one.
    const there = names.filter((name) => own.includes(name));
    return Object.fromEntries(there.map((name) => [name, within(name, all[name], value[name])]));
  };
}

export function nonempty(shape) {
  return (value) => {
    const found = shape(value);
    if (!found.length) throw shapeError("must be left out");
    return found;
  };
}
