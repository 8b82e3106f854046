// Trust policies (C2SP tlog-policy): which logs and witnesses count, and how many.

import { decimal } from "./bytes.mjs";
import { COSIGNATURE, ED25519, ML_DSA_44, parseVkey } from "./log.mjs";
import { Refused } from "./shape.mjs";

const MAX_POLICY = 1 << 20; // bytes
const MAX_DEFINED = 1000; // logs, witnesses and groups
const NONE = "none";

// One character for each byte: names are compared, never interpreted.
const octets = (data) => Array.from(data, (byte) => String.fromCharCode(byte)).join("");

function policyKey(name, kinds, wanted) {
  let text;
  try {
    const data = Uint8Array.from(name, (one) => one.charCodeAt(0));
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(data);
  } catch {
    throw new Refused("a key name is valid UTF-8");
  }
  const key = parseVkey(text);
  if (!kinds.includes(key.kind)) throw new Refused(wanted);
  return key;
}

function needNew(key, before) {
  const raw = octets(key.raw);
  if (before.some((one) => octets(one.raw) === raw)) {
    throw new Refused("the same public key twice");
  }
}

function needKnown(name, names) {
  if (!names.has(name)) throw new Refused("a name that no line before this one defines");
}

function define(name, names) {
  if (name === NONE || names.has(name)) throw new Refused("the name is taken");
  names.add(name);
}

function groupOf(draft, name, least, members) {
  for (const member of members) needKnown(member, draft.names);
  define(name, draft.names);
  const used = new Set(draft.groups.flatMap((group) => group.members));
  if (new Set(members).size < members.length || members.some((one) => used.has(one))) {
    throw new Refused("a name is a member of a group twice: it could count twice");
  }
  const known = { all: members.length, any: 1 };
  const number = Object.hasOwn(known, least) ? known[least] : Number(decimal(least, 1000000n) ?? 0);
  if (!(1 <= number && number <= members.length)) {
    throw new Refused("a group needs all, any, or a number from 1 to its members'");
  }
  return { name, least: number, members };
}

function add(draft, [word, ...rest]) {
  if (draft.logs.length + draft.witnesses.length + draft.groups.length >= MAX_DEFINED) {
    throw new Refused(`more than ${MAX_DEFINED} logs, witnesses and groups`);
  }
  if (word === "log" && (rest.length === 1 || rest.length === 2)) {
    const key = policyKey(rest[0], [ED25519], "a log's key is Ed25519 (0x01)");
    needNew(key, draft.logs);
    draft.logs.push(key);
  } else if (word === "witness" && (rest.length === 2 || rest.length === 3)) {
    define(rest[0], draft.names);
    const wanted = "a witness's key is Ed25519 (0x04) or ML-DSA-44 (0x06) with a time";
    const key = policyKey(rest[1], [COSIGNATURE, ML_DSA_44], wanted);
    needNew(key, draft.witnesses.map((one) => one.key));
    draft.witnesses.push({ name: rest[0], key });
  } else if (word === "group" && rest.length > 2) {
    draft.groups.push(groupOf(draft, rest[0], rest[1], rest.slice(2)));
  } else if (word === "quorum" && rest.length === 1) {
    if (draft.quorum !== null) throw new Refused("a second quorum");
    if (rest[0] !== NONE) needKnown(rest[0], draft.names);
    draft.quorum = rest[0];
  } else {
    throw new Refused(
      "not one of: log <vkey> [<url>]; witness <name> <vkey> [<url>]; " +
        "group <name> all|any|<k> <name>...; quorum <name>",
    );
  }
}

// {logs: keys, witnesses: [{name, key}], groups: [{name, least, members}], quorum} of a file's
// bytes.
export function parsePolicy(data) {
  if (data.length > MAX_POLICY) throw new Refused(`a policy has at most ${MAX_POLICY} bytes`);
  const text = octets(data);
  if (/[\x00-\x08\x0b-\x1f\x7f]/.test(text)) {
    throw new Refused("a policy has no control characters but tab and newline");
  }
  if (text && !text.endsWith("\n")) {
    throw new Refused("the last line of the policy does not end in a newline");
  }
  const draft = { logs: [], witnesses: [], groups: [], names: new Set(), quorum: null };
  for (const [at, line] of text.split("\n").entries()) {
    const items = line.split(/[ \t]+/).filter(Boolean);
    if (!items.length || items[0].startsWith("#")) continue;
    try {
      add(draft, items);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      throw new Refused(`line ${at + 1} of the policy: ${error.message}`);
    }
  }
  if (draft.quorum === null) {
    throw new Refused(
      "the policy has no quorum line: add 'quorum NAME' with a witness or a group, or 'quorum none'",
    );
  }
  return draft;
}

// Whether the quorum is met by the witnesses with these keys.
export function isMet({ witnesses, groups, quorum }, signed) {
  if (quorum === NONE) return true;
  const done = new Set(witnesses.filter((one) => signed.includes(one.key)).map((one) => one.name));
  for (const { name, least, members } of groups) {
    if (members.filter((member) => done.has(member)).length >= least) done.add(name);
  }
  return done.has(quorum);
}
