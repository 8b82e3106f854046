// Extracts the certificate file embedded in Lethe's PDF (PDF/A-3).

import { utf8 } from "./bytes.mjs";

const MOST = 1 << 21; // bytes; no certificate is larger

export function isPdf(bytes) {
  return String.fromCharCode(...bytes.subarray(0, 5)) === "%PDF-";
}

function find(bytes, word, from) {
  const wanted = utf8(word);
  for (let at = from; at + wanted.length <= bytes.length; at += 1) {
    let same = 0;
    while (same < wanted.length && bytes[at + same] === wanted[same]) same += 1;
    if (same === wanted.length) return at;
  }
  return -1;
}

// The content of a zlib stream, null if it is invalid or too large.
async function inflated(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const reader = stream.getReader();
  const parts = [];
  let size = 0;
  try {
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      size += part.value.length;
      if (size > MOST) return null;
      parts.push(part.value);
    }
  } catch {
    // What follows the stream is not part of it, such as an end of line.
  }
  const joined = new Uint8Array(await new Blob(parts).arrayBuffer());
  return joined.length ? joined : null;
}

// The first embedded file that is JSON, null if there is none. It is not trusted: the steps of
// the verification check it like any other file.
export async function bundleInPdf(bytes) {
  let at = find(bytes, "/EmbeddedFile", 0);
  while (at >= 0) {
    const begin = find(bytes, "stream", at);
    const end = begin < 0 ? -1 : find(bytes, "endstream", begin + 6);
    if (end < 0) return null;
    const first = begin + 6 + (bytes[begin + 6] === 13 ? 2 : 1);
    const raw = bytes.subarray(first, end);
    const found = raw[0] === 0x7b ? raw : await inflated(raw);
    if (found !== null && found[0] === 0x7b) return found;
    at = find(bytes, "/EmbeddedFile", end);
  }
  return null;
}
