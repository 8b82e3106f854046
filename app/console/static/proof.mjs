// Checks in this browser that an entry is in the tree whose checkpoint the log's key signed.
//
// The same modules as the verification page: they share no code with the service.

import { fromBase64 } from "../../verify/bytes.mjs";
import { checkInclusion, leafHash, openCheckpoint, parseLogVkey } from "../../verify/log.mjs";
import { Refused } from "../../verify/shape.mjs";

const place = document.getElementById("proof");
const verdict = document.getElementById("verdict");
const vkey = document.getElementById("vkey");

function say(text, detail, kind) {
  verdict.textContent = detail ? `${text} ${detail}` : text;
  verdict.className = `notice ${kind}`;
}

async function check() {
  const { index, size, leaf, hashes, good, bad, cannot } = place.dataset;
  try {
    const key = parseLogVkey(vkey.value.trim());
    const note = document.getElementById("note").textContent;
    const checkpoint = await openCheckpoint(note, key);
    if (checkpoint.size !== BigInt(size)) throw new Refused("the checkpoint belongs to another tree");
    const proof = hashes.split(" ").filter(Boolean).map(fromBase64);
    const hash = leafHash(fromBase64(leaf));
    checkInclusion(BigInt(index), BigInt(size), hash, proof, checkpoint.root);
    say(good, "", "good");
  } catch (error) {
    say(error instanceof Refused ? bad : cannot, error.message, "bad");
  }
}

vkey.addEventListener("input", check);
check();
