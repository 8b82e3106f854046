// The verification page: reads files that are dropped, and shows what `verify` finds.
//
// It sends nothing: the page's Content-Security-Policy forbids every connection.

import { TEXTS } from "./texts.mjs";
import { bundleInPdf, isPdf } from "./pdf.mjs";
import { Refused, Unsupported, readKeys, verify } from "./verify.mjs";

const element = (id) => document.getElementById(id);
let language = navigator.languages.map((one) => one.slice(0, 2)).find((one) => one in TEXTS) ?? "en";
let shown = null; // redraws the answer in another language

function say(name) {
  return TEXTS[language].page[name];
}

function filled(text, values) {
  return text.replace(/\{(\w+)\}/g, (place, name) => values[name] ?? place);
}

// Only text is put into the page: a file's content is never markup.
function make(tag, text, attributes = {}) {
  const made = document.createElement(tag);
  if (text !== null) made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

function translate() {
  document.documentElement.lang = language;
  document.title = say("title");
  for (const one of document.querySelectorAll("[data-text]")) {
    one.textContent = say(one.dataset.text);
  }
}

// Replaces invisible characters: a file's name could use them to alter the page.
function plain(text) {
  return text.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, "\ufffd");
}

function stepTable(steps) {
  const table = make("table", null);
  const head = table.createTHead().insertRow();
  for (const name of ["step", "outcome", "detail"]) head.append(make("th", say(name), { scope: "col" }));
  const body = table.createTBody();
  for (const step of steps) {
    const row = body.insertRow();
    row.append(make("th", `${step.number}. ${step.name}`, { scope: "row", lang: "en" }));
    const word = !step.checked ? "idle" : step.passed ? "ok" : "bad";
    const style = { idle: "", ok: "good-word", bad: "bad-word" }[word];
    row.append(make("td", say(word), { class: style }));
    row.append(make("td", plain(step.detail), { lang: "en" }));
  }
  const scroll = make("div", null, { class: "scroll", tabindex: "0", role: "region", "aria-label": say("steps") });
  scroll.append(table);
  return scroll;
}

function facts(predicate) {
  const list = make("dl", null);
  const own = TEXTS[language].certificate;
  const { scope, model, guarantee } = predicate;
  const numbered = filled(own.records[scope.records === "1" ? 0 : 1], { n: scope.records });
  const entries = {
    fact_result: predicate.result,
    fact_records: filled(own[scope.level], { records: numbered }),
    fact_model: model.ref,
    fact_completed: predicate.completedAt,
    fact_method: `${predicate.method.id} ${predicate.method.version}`,
    fact_guarantee: `${guarantee.class}: ${guarantee.statement}`,
    fact_request: predicate.requestRef,
    fact_certificate: predicate.certificateId,
  };
  for (const [name, value] of Object.entries(entries)) {
    // The statement has English words, whatever the language of the page.
    const spoken = name === "fact_guarantee" ? { lang: "en" } : {};
    list.append(make("dt", say(name)), make("dd", plain(value), spoken));
  }
  return list;
}

function limits(steps) {
  const list = make("ul", null);
  const names = ["limit_keys", "limit_compute", "limit_elsewhere"];
  if (steps[5].detail.startsWith("none required")) names.unshift("limit_witnesses");
  if (!steps[8].checked) names.unshift("limit_file_evidence");
  if (!steps[7].checked) names.unshift("limit_file_model");
  list.append(...names.map((name) => make("li", say(name))));
  return list;
}

function showVerdict({ outcome, steps, statement }) {
  const achieved = statement?.predicate.result === "PASS";
  const failed = outcome === "policy-not-met" ? "unmet" : "failed";
  const word = outcome !== "authentic" ? failed : achieved ? "authentic" : "not_pass";
  const parts = [make("p", say(word), { class: achieved ? "verdict good" : "verdict" })];
  if (statement !== null) {
    parts.push(make("h2", say("says")), facts(statement.predicate));
    parts.push(make("h2", say("limits")), limits(steps));
  }
  parts.push(make("h2", say("steps")), stepTable(steps));
  element("answer").replaceChildren(...parts);
}

function showProblem(name, detail) {
  const parts = [make("p", say(name), { class: "verdict" })];
  if (detail) parts.push(make("p", plain(detail)));
  element("answer").replaceChildren(...parts);
}

async function bytesOf(id) {
  const [file] = element(id).files;
  return file === undefined ? null : new Uint8Array(await file.arrayBuffer());
}

async function answer() {
  let bundle = await bytesOf("file");
  if (bundle === null) return () => showProblem("no_file");
  if (isPdf(bundle)) bundle = await bundleInPdf(bundle);
  if (bundle === null) return () => showProblem("no_bundle");
  let keys;
  try {
    // A text area drops carriage returns, and pasted text may end in spaces.
    const [logKey, root, policy] = ["log-key", "trust-root", "policy"].map((id) => element(id).value.trim());
    const [trustRoot, policyFile] = [root, policy && `${policy}\n`].map((text) => text ? new TextEncoder().encode(text) : null);
    // With a trust root the log's key may be left out: then the file itself is trusted.
    const known = trustRoot !== null && !logKey ? null : logKey;
    const [first, second = null, ...more] = known === null ? [null] : known.split(/\s*\n\s*/);
    if (more.length) throw new Refused("the log has two keys at most, one on each line");
    keys = await readKeys(first, element("issuer-key").value, [], policyFile, second, trustRoot);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    return () => showProblem("no_keys", error.message);
  }
  const options = { model: await bytesOf("model"), evidence: await bytesOf("evidence") };
  const verdict = await verify(bundle, keys, options);
  return () => showVerdict(verdict);
}

async function run() {
  element("answer").replaceChildren(make("p", say("working")));
  try {
    shown = await answer();
  } catch (error) {
    // Whatever happens, never leave the answer for the previous file.
    shown = () => showProblem("cannot", error instanceof Unsupported ? error.message : String(error));
  }
  shown();
  element("answer").focus();
}

element("form").addEventListener("submit", (event) => {
  event.preventDefault();
  run();
});
for (const name of ["dragover", "dragleave", "drop"]) {
  // On the whole window: a file dropped beside the field must not replace the page.
  window.addEventListener(name, (event) => {
    event.preventDefault();
    element("drop").classList.toggle("over", name === "dragover");
    if (name === "drop" && event.dataTransfer.files.length) {
      element("file").files = event.dataTransfer.files;
      run();
    }
  });
}
element("file").addEventListener("change", () => {
  if (element("file").files.length) run();
});
element("language").value = language;
element("language").addEventListener("change", () => {
  language = element("language").value;
  translate();
  if (shown) shown();
});
translate();
