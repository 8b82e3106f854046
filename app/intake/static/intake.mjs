// The two things that pages cannot do alone: sign, and read what stands behind the "#".

const base64 = (bytes) => btoa(String.fromCharCode(...new Uint8Array(bytes)));

/** Make a key pair that never leaves the browser, by the first algorithm that it knows. */
async function makeKeys() {
  const usages = ["sign", "verify"];
  try {
    const pair = await crypto.subtle.generateKey({ name: "Ed25519" }, false, usages);
    return { pair, how: { name: "Ed25519" } };
  } catch {
    const kind = { name: "ECDSA", namedCurve: "P-256" };
    const pair = await crypto.subtle.generateKey(kind, false, usages);
    return { pair, how: { name: "ECDSA", hash: "SHA-256" } };
  }
}

async function sign(form) {
  const status = document.getElementById("key");
  if (!globalThis.crypto?.subtle) return; // no secure context: the page says that nothing signs
  status.textContent = status.dataset.wait;
  try {
    const { pair, how } = await makeKeys();
    const said = new TextEncoder().encode(form.dataset.statement);
    const signature = await crypto.subtle.sign(how, pair.privateKey, said);
    form.elements.key.value = base64(await crypto.subtle.exportKey("spki", pair.publicKey));
    form.elements.signature.value = base64(signature);
    status.textContent = status.dataset.ready;
  } catch {
    status.textContent = status.dataset.none;
  }
}

function openCase(form) {
  const code = decodeURIComponent(location.hash.slice(1));
  if (!/^[0-9A-Za-z-]{40,60}$/.test(code)) return;
  history.replaceState(null, "", location.pathname + location.search); // not in the history
  const status = document.getElementById("opening");
  status.textContent = status.dataset.text;
  form.elements.code.value = code;
  form.submit();
}

const confirming = document.getElementById("confirm");
if (confirming) sign(confirming);
const finding = document.getElementById("find");
if (finding) {
  openCase(finding);
  addEventListener("hashchange", () => openCase(finding));
}
