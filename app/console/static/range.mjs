// Checks in this browser that a page of the log has all entries from its first to its last.
//
// The same modules as the verification page: they share no code with the service.

import { fromBase64 } from "../../verify/bytes.mjs";
import { checkRange, leafHash, openCheckpoint, parseLogVkey } from "../../verify/log.mjs";
import { Refused } from "../../verify/shape.mjs";

const list = (texts) => texts.split(" ").filter(Boolean).map(fromBase64);

async function check() {
  const place = document.getElementById("range");
  if (place === null) return; // a filter was chosen, or the log is empty
  const verdict = document.getElementById("verdict");
  const { start, end, startRoot, endRoot, own, onward, note, leaves } = place.dataset;
  const say = (text, detail, kind) => {
    verdict.textContent = detail ? `${text} ${detail}` : text;
    verdict.className = `notice ${kind}`;
  };
  try {
    const key = parseLogVkey(document.getElementById("vkey").value.trim());
    const { size, root } = await openCheckpoint(note, key);
    const range = {
      start: BigInt(start),
      end: BigInt(end),
      startRoot: fromBase64(startRoot),
      endRoot: fromBase64(endRoot),
      own: list(own),
      onward: list(onward),
    };
    checkRange(range, list(leaves).map((leaf) => leafHash(leaf)), size, root);
    say(place.dataset.good, "", "good");
  } catch (error) {
    const { bad, cannot } = place.dataset;
    say(error instanceof Refused ? bad : cannot, error.message, "bad");
  }
}

document.addEventListener("input", ({ target }) => {
  if (target.id === "vkey") check();
});
document.addEventListener("htmx:after:swap", check); // another filter was chosen
check();
